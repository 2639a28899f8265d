"""What every table of bugs owes its reader. A page's test file makes `TestBugs` of it."""

from tests.pages import properties as p


class Bugs:
    """The tests of {what somebody did: (what it makes of the lines of CELL, the properties that catch it)}.

    A property takes what `subject` makes of the names of the cell's program: all of them, or one.
    """

    SLUG, CELL, PROPERTIES, BUGS = None, None, [], {}

    @staticmethod
    def subject(names):
        return names

    def test_the_page_has_the_property(self, holds):
        holds(self.subject(p.page_code(self.SLUG, self.CELL)))

    def test_a_known_bug_is_caught_by_the_properties_that_the_table_names(self, bug):
        replacements, catching = self.BUGS[bug]
        broken = self.subject(p.page_code(self.SLUG, self.CELL, (self.CELL, replacements)))
        assert catching
        assert [holds for holds in catching if not p.catches(holds, broken)] == []

    def test_every_property_catches_a_bug(self, holds):
        assert any(holds in catching for _, catching in self.BUGS.values())
