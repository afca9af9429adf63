"""States of Python's generator that are derived from a seed. Needs neither torch nor NumPy."""

import random
import unittest
import unittest.mock

from package import *
from penstock import _seeds


class SeedsTest(unittest.TestCase):
    def test_a_state_is_the_same_wherever_the_interpreter_stores_it(self):
        direct, by_setstate = random.Random(3), random.Random(4)
        by_setstate.gauss(0, 1)  # keeps a second number for the next call
        known = _seeds.PythonGenerator(direct)
        self.assertIsNotNone(known._address, "this interpreter keeps its state elsewhere: a seed takes 12 us instead of 0.5")
        with unittest.mock.patch.object(_seeds, "_state_address", return_value=None):
            unknown = _seeds.PythonGenerator(by_setstate)
        for seed in (0, 1, (1 << 63) - 1, (1 << 64) - 1):
            known(seed)
            unknown(seed)
            self.assertEqual(direct.getstate(), by_setstate.getstate())
            self.assertEqual([direct.gauss(0, 1) for _ in range(700)], [by_setstate.gauss(0, 1) for _ in range(700)])

    def test_the_words_match_those_of_splitmix64(self):
        generator = random.Random()
        _seeds.PythonGenerator(generator)(1234567)
        state = generator.getstate()[1]
        # The first two numbers of SplitMix64 from 1234567, as printed by its authors' program.
        self.assertEqual([state[0] | state[1] << 32, state[2] | state[3] << 32], [6457827717110365317, 3203168211198807973])
        self.assertEqual(state[-1], 624)

    def test_a_generator_of_another_class_is_not_modified_in_place(self):
        class Mine(random.Random):
            pass
        self.assertIsNone(_seeds._state_address(Mine()))

    def test_numbers_from_neighbouring_seeds_are_unrelated(self):
        generator, first = random.Random(), []
        seed = _seeds.PythonGenerator(generator)
        for number in range(4000):
            seed(number)
            first.append(generator.random())
        mean = sum(first) / len(first)
        self.assertAlmostEqual(mean, 0.5, delta=0.03)  # more than six times the standard deviation of such a mean
        together = sum((a - mean) * (b - mean) for a, b in zip(first, first[1:])) / len(first)
        self.assertAlmostEqual(12 * together, 0.0, delta=0.1)


if __name__ == "__main__":
    main()
