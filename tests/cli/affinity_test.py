"""[loader] affinity: which cores workers run on."""

from harness import *

CONFIG = synthetic(samples=100000, batch=2, epochs=1, dataset='wait = "20ms"', more="[loader]\nworkers = 2\n")


def cores_of(pid):
    return sorted(os.sched_getaffinity(pid))


class AffinityTest(PenstockTest):
    def cores_of_workers(self, affinity):
        self.start("run", self.write("cores.toml", CONFIG), "--quiet", "--set", "loader.affinity=%s" % affinity)
        code, out, err = self.penstock("wait", "--for=ready", "--timeout", "20s")
        self.assertEqual(code, EXIT_OK, out + err)
        return [cores_of(worker["pid"]) for worker in json.loads(self.penstock("status", "--json")[1])["workers"]]

    def test_workers_run_only_on_the_listed_cores(self):
        one = max(os.sched_getaffinity(0))
        self.assertEqual(self.cores_of_workers("[%d]" % one), [[one], [one]])

    def test_without_a_list_workers_run_on_any_core_that_the_program_may_use(self):
        self.assertEqual(self.cores_of_workers('"none"'), [cores_of(0)] * 2)

    def test_a_forbidden_core_is_refused_and_the_error_lists_the_allowed_ones(self):
        config = self.write("cores.toml", CONFIG.replace("workers = 2", "workers = 2\naffinity = [0, 4000]"))
        code, out, err = self.penstock("run", config, "--quiet")
        self.assertEqual(code, EXIT_FAILED, out + err)
        self.assertRegex(err, r"'affinity' in \[loader\] names core 4000, but this process may use only cores [0-9,-]+: name some of these")
        code, out, err = self.penstock("check-config", config)
        self.assertEqual(code, EXIT_OK, out + err)
        self.assertIn("names core 4000", out + err)
        self.assertIn("not all of these may be used here", out + err)
        self.assertEqual(self.penstock("check-config", config, "--strict")[0], EXIT_CONFIG)

    def test_a_core_that_exists_but_that_the_cgroup_forbids_is_refused(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            self.skipTest("needs two cores")
        allowed, forbidden = cores[0], cores[1]
        enter = self.in_cgroup("cpuset", {"cpuset.cpus": str(allowed), "cpuset.mems": "0"}, {"cpuset.cpus": str(allowed)})
        code, out, err = self.penstock("run", self.write("cores.toml", CONFIG), "--quiet", "--set", "loader.affinity=[%d, %d]" % (allowed, forbidden),
                                       preexec_fn=enter)
        self.assertEqual(code, EXIT_FAILED, out + err)
        self.assertIn("names core %d, but this process may use only cores %d: name " % (forbidden, allowed), err)

    def test_a_value_that_is_neither_a_list_nor_a_known_word_is_refused(self):
        for affinity, wrong in (("[]", "is empty"), ("3", "write [3]"), ('"near"', "cannot be"), ("[-1]", "out of range"), ('["0"]', "whole number")):
            code, out, err = self.penstock("run", self.write("cores.toml", CONFIG), "--quiet", "--set", "loader.affinity=%s" % affinity)
            self.assertEqual(code, EXIT_CONFIG, (affinity, out + err))
            self.assertIn(wrong, out + err, affinity)


if __name__ == "__main__":
    main()
