"""Correct programs print only their own output."""

from package import *

TWO_LOADERS = """
    import torch
    from penstock.torch import DataLoader

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, index):
            return index

    ordered, shuffled = (DataLoader(Numbers(), batch_size=4, num_workers=1, shuffle=shuffle) for shuffle in (False, True))
    print(sum(one.sum().item() + other.sum().item() for one, other in zip(ordered, shuffled)))
    """

NESTED_POOLS = """
    import penstock

    def increment(number):
        return number + 1

    def middle(count):
        with penstock.Pool(2) as pool:
            return sum(pool.map(increment, range(count)))

    def outer(count):
        with penstock.Pool(2) as pool:
            return sum(pool.map(middle, range(count)))

    with penstock.Pool(2) as pool, penstock.Pool(2) as other:
        print(sum(pool.map(outer, range(4))) + sum(other.map(middle, range(3))))
    """


class QuietTest(PackageTest):
    def check(self, processes, printed):
        for process in processes:
            out, err = process.communicate(timeout=150)
            self.assertEqual((process.returncode, out.split(), err), (0, [printed], ""))

    def test_two_loaders_of_one_program_print_nothing(self):
        self.need_torch()
        self.check([self.program(TWO_LOADERS)], "992")

    def test_loaders_of_two_ranks_of_one_host_print_nothing(self):
        self.need_torch()
        self.check([self.program(TWO_LOADERS) for _ in range(2)], "992")

    def test_pools_in_workers_of_pools_print_nothing(self):
        self.check([self.program(NESTED_POOLS)], "9")


if __name__ == "__main__":
    main()
