"""What is done once for all languages of a build, and for all builds of a preview."""

from jinja2 import BytecodeCache


class Kept:
    """What was made of each thing, until it is made of something else."""

    def __init__(self):
        self.made = {}

    def __call__(self, name, source, make):
        """What `make` returns; what it returned the last time, where it was called for an equal `source`."""
        if self.made.get(name, (None,))[0] != source:
            self.made[name] = source, make()
        return self.made[name][1]


class Templates(BytecodeCache):
    """Compiled templates; one that has changed has another checksum."""

    def __init__(self):
        self.compiled = {}

    def load_bytecode(self, bucket):
        bucket.code = self.compiled.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket):
        self.compiled[bucket.key, bucket.checksum] = bucket.code
