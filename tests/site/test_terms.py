"""The glossary for readers: which words of a page become links, and in which order the entries stand."""

import pytest

from tests.site.made import after
from tools.site.terms import Terms

HEADER = "id,en,it,zh,where,says_en,says_it,says_zh"
ROWS = [
    'mask,mask,maschera,掩码,a#b,"Hides <keys>, ""all"".",Nasconde.,遮住键。',
    "causal-mask,causal mask,maschera causale,因果掩码,a#c,Hides the future.,Nasconde il futuro.,遮住未来。",
    "key,key (a vector),chiave,键,a#top,It is found.,Si fa trovare.,让人找到。",
    "entry,entry,elemento,项,a#b,One number.,Un numero.,一个数。",
    "item,item,elemento,项,a#b,One sequence.,Una sequenza.,一个序列。",
    "loss-mask,loss mask,maschera della loss,损失掩码,,,,",
    "memory,memory,memoria,记忆,a#b,Is read.,Si legge.,拿来读。",
]


@pytest.fixture
def terms(tmp_path):
    def read(language, *rows, header=HEADER):
        path = tmp_path / "glossary.csv"
        path.write_text("\n".join([header, *(rows or ROWS), ""]), encoding="utf-8")
        return Terms(path, language, ["en", "it", "zh"])

    return read


MASK = '<a class="term" href="../glossary/#mask" title="Hides &lt;keys&gt;, &quot;all&quot;.">{}</a>'
CAUSAL = '<a class="term" href="../glossary/#causal-mask" title="Hides the future.">{}</a>'
ALONE = (  # no prose, or no term
    '<h2>A mask</h2><p>masked</p><p><code>mask</code> <a href="x">a <em>mask</em></a></p>'
    "<p>A loss mask in memory, &lt;b&gt;.</p>"
)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("<p>A mask and a mask.</p>", f"<p>A {MASK.format('mask')} and a mask.</p>"),
        ("<p>A causal\nmask.</p>", f"<p>A {CAUSAL.format(f'causal{chr(10)}mask')}.</p>"),
        ("<p>causal</p><p>mask</p>", f"<p>causal</p><p>{MASK.format('mask')}</p>"),
        (ALONE, ALONE),
    ],
)
def test_the_first_mention_of_a_term_in_prose_is_a_link_with_its_sentence(terms, body, wanted):
    assert after(terms("en").link, body, "../glossary/") == wanted


def test_a_word_of_two_terms_is_no_link(terms):
    assert after(terms("it").link, "<p>Un elemento.</p>", "") == "<p>Un elemento.</p>"
    assert after(terms("en").link, "<p>An entry, an item.</p>", "").count("<a ") == 2


def test_each_language_has_its_own_words(terms):
    assert 'title="Nasconde.">maschere</a>' in after(terms("it").link, "<p>Le maschere</p>", "")
    assert 'title="遮住键。">掩码</a>' in after(terms("zh").link, "<p>一个掩码</p>", "")


def test_entries_are_in_the_order_of_the_alphabet_with_the_other_names(terms):
    assert [entry["name"] for entry in terms("it").entries][:3] == ["chiave", "elemento", "elemento"]
    assert [entry["id"] for entry in terms("zh").entries] == ["causal-mask", "entry", "item", "key", "mask", "memory"]
    [first, *_] = terms("en").entries
    assert (first["names"], first["where"]) == ({"it": "maschera causale", "zh": "因果掩码"}, "a#c")


def test_a_language_that_has_no_sentence_yet_shows_the_english_ones(terms):
    header, rows = f"{HEADER},ja,says_ja", [f"{row},," for row in ROWS]
    assert terms("ja", *rows, header=header).entries[0]["says"] == "Hides the future."
