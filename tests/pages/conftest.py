from tests.pages import properties as p


def pytest_generate_tests(metafunc):
    """`right`, `wrong`: each answer to an exercise; `language`: each that has its page."""
    names = {"right", "wrong", "language"} & set(metafunc.fixturenames)
    for name in sorted(names) if metafunc.cls else ():
        exercise = metafunc.cls
        values = {"right": exercise.RIGHT, "wrong": exercise.WRONG, "language": p.languages(exercise.SLUG)}
        metafunc.parametrize(name, values[name])
