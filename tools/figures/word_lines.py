"""The weights of a small translator after some steps of training: which source word each written word reads."""

from tools.figures.pages import Numbers, names_of

SLUG = "cross/alignment"
SENTENCES = ["weil er vorgestern Tee kaufte", "weil er morgens Tee kaufte", "ob sie Milch fand"]
STEPS = [0, 30, 100]  # of training


def word_lines() -> Numbers:
    """For each number of steps and each sentence the written words and the weights of each."""
    page = names_of(SLUG)
    source = page["encode"](SENTENCES, page["german_words"])
    cases = []
    for steps in STEPS:
        logits, weights = page["train_translator"](steps)(source, length=8)
        for number, text in enumerate(SENTENCES):
            written = [page["english_words"][word] for word in logits[number].argmax(dim=-1).tolist()]
            state = {"sentence": str(number), "steps": str(steps), "place": "3"}
            rounded = [[round(weight, 2) for weight in row] for row in weights[number].detach().tolist()]
            read = [*text.split(), "<pad>"][: source.shape[1]]
            cases.append({"state": state, "read": read, "written": written, "weights": rounded})
    first = cases[-len(SENTENCES)]
    return {"sentences": SENTENCES, "steps": STEPS, "cases": [first, *(case for case in cases if case is not first)]}
