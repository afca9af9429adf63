"""The examples that train, on small data: a killed worker changes no loss, and a killed program continues from its checkpoint.

A test is skipped where the libraries of its example are not installed: `tools/test-training` installs them all.
"""

import glob
import importlib.util
import re
import shutil
import socket

from package import *

EXAMPLES = os.path.join(TOP, "examples")
PATIENCE = 500  # seconds: importing these libraries takes that long on a busy machine


class TrainingExample(PackageTest):
    """Runs an example, kills the given processes, and returns the lines that it prints about its epochs."""

    def need(self, *names):
        for name in names:
            if importlib.util.find_spec(name) is None:
                self.skipTest("%s is not installed (tools/test-training installs it)" % name)

    def begin(self, *command):
        environment = dict(self.environment, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", HF_HOME=self.folder)
        self.log = open(os.path.join(self.folder, "stderr"), "a+")
        self.addCleanup(self.log.close)
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment, cwd=self.folder)
        self._running.append(process)
        return process

    def example(self, name, *arguments):
        return self.begin(sys.executable, "-B", os.path.join(EXAMPLES, name), *arguments)

    def said(self, process, expect=0):
        """The output lines of a program that ends by itself."""
        out, _ = process.communicate(timeout=PATIENCE)
        self.log.seek(0)
        self.errors = self.log.read()
        self.assertEqual(process.returncode, expect, out + self.errors)
        return out.splitlines()

    def line_with(self, process, text):
        """Waits for the program to end."""
        before = []
        for line in process.stdout:
            before.append(line)
            if text in line:
                return line
        process.wait()
        self.log.seek(0)
        self.fail("it ended without saying %r: %s%s" % (text, "".join(before), self.log.read()))

    def kill_workers(self, process):
        killed = [pid for pid in descendants_of(process.pid) if self.is_worker(pid)]
        self.assertTrue(killed)
        for pid in killed:
            signal_process(pid, signal.SIGKILL)

    @staticmethod
    def is_worker(pid):
        try:
            with open("/proc/%d/cmdline" % pid) as file:
                return "penstock.worker" in file.read()
        except OSError:
            return False

    def kill_one_run_and_the_workers_of_another(self, name, arguments, places, saved):
        """Each run has its own folder for checkpoints. Returns the lines about epochs, which are the same for both."""
        first = self.example(name, *arguments, *places[0])
        self.line_with(first, saved)
        first.kill()
        first.wait()
        resumed = self.epochs(self.said(self.example(name, *arguments, *places[0])))
        second = self.example(name, *arguments, *places[1])
        self.line_with(second, saved)
        self.kill_workers(second)
        self.last = self.said(second)
        self.assertIn("SIGKILL", self.errors)
        self.assertEqual(self.epochs(self.last), resumed)
        return resumed

    @staticmethod
    def epochs(lines):
        return [line for line in lines if line.startswith("epoch")]


class ExamplesTest(TrainingExample):
    def photos(self, *folders, count=16):
        self.need("torch", "torchvision", "PIL")
        for seed, folder in enumerate(folders):
            make_photos(os.path.join(self.folder, folder), count, classes=2, size=(40, 36), seed=seed)

    def small_imagenet(self):
        self.photos("photos/train", "photos/val")
        self.write("photos/train/class1/broken.jpg", "no picture")
        return ["photos", "--model", "resnet18", "--size", 32, "--batch-size", 4, "--workers", 1, "--epochs", 2, "--save-every", 3]

    def test_resnet_has_the_same_losses_after_a_worker_or_the_program_was_killed(self):
        lines = self.kill_one_run_and_the_workers_of_another("14_resnet50_imagenet.py", self.small_imagenet(),
                                                            (("--checkpoint", "a.pt"), ("--checkpoint", "b.pt")), "saved")
        self.assertEqual([line.split(":")[0] for line in lines], ["epoch 0", "epoch 1"])
        self.assertRegex("\n".join(self.last), r"replaced: photos/train/class1/broken.jpg PIL.UnidentifiedImageError")

    def test_ranks_of_resnet_train_together_and_save_once(self):
        lines = self.said(self.begin(PENSTOCK, "launch", "--gpus", "host:2", "--", sys.executable, "-B",
                                     os.path.join(EXAMPLES, "14_resnet50_imagenet.py"), *self.small_imagenet()))
        epochs = [line for line in lines if "epoch" in line]
        self.assertEqual([re.search(r"epoch (\d): loss of the last batch \d+\.\d{6}, accuracy", line)[1] for line in epochs], ["0", "1"])
        self.assertEqual(len([line for line in lines if "saved" in line]), 1)  # one checkpoint, after 3 of 4 steps

    def test_a_classifier_of_hugging_face_has_the_same_losses_even_if_workers_are_killed(self):
        self.need("torch", "transformers", "datasets", "accelerate")
        good, bad = "a good film of joy", "a bad film of gloom"
        rows = [json.dumps({"text": "%s %d" % ((bad, good)[n % 2], n), "label": n % 2}) for n in range(80)]
        self.write("reviews.jsonl", "\n".join(rows) + "\n")
        self.ran("""
            import transformers
            transformers.set_seed(1)
            words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a good bad film of joy gloom".split()]
            with open("words", "w") as file:
                file.write("\\n".join(words))
            transformers.BertTokenizerFast("words").save_pretrained("small")
            config = transformers.BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                             intermediate_size=16, num_labels=2)
            transformers.BertForSequenceClassification(config).save_pretrained("small")
            """, timeout=PATIENCE)
        arguments = ("--data", "reviews.jsonl", "--model", "small", "--epochs", 4, "--batch-size", 8, "--workers", 1, "--learning-rate", 0.01)
        whole = self.said(self.example("15_finetune_accelerate.py", *arguments))
        self.assertEqual([re.sub(r"[\d.]+(?=,| %)", "N", line) for line in whole], ["epoch %d: loss N, accuracy N %%" % n for n in range(4)])
        disturbed = self.example("15_finetune_accelerate.py", *arguments)
        begin = self.line_with(disturbed, "epoch 0")
        self.kill_workers(disturbed)
        self.assertEqual([begin.rstrip(), *self.said(disturbed)], whole)
        self.assertIn("SIGKILL", self.errors)
        self.assertIn("model.safetensors", os.listdir(os.path.join(self.folder, "finetuned")))

    def test_lightning_has_the_same_losses_after_a_worker_or_the_program_was_killed(self):
        self.need("lightning")
        self.photos("photos")
        lines = self.kill_one_run_and_the_workers_of_another(
            "16_lightning.py", ["photos", "--size", 32, "--batch-size", 4, "--workers", 1, "--epochs", 2, "--save-every", 3, "--devices", 1],
            (("--checkpoints", "a"), ("--checkpoints", "b")), "saved after step 3")
        self.assertEqual([line.split(":")[0] for line in lines], ["epoch 0", "epoch 1"])

    def test_shards_of_webdataset_get_a_different_order_in_each_epoch_and_a_killed_worker_does_not_change_it(self):
        self.need("webdataset")
        self.photos("photos")
        self.ran("""
            import glob, webdataset
            for shard in range(2):
                with webdataset.TarWriter("shard-%06d.tar" % shard) as writer:
                    for path in sorted(glob.glob("photos/*/*.jpg"))[shard::2]:
                        with open(path, "rb") as file:
                            writer.write({"__key__": path.split("/")[2][:-4], "jpg": file.read(), "cls": int(path.split("/")[1][-1])})
            """, timeout=PATIENCE)
        arguments = ("shard-{000000..000001}.tar", "--classes", 2, "--size", 32, "--batch-size", 2, "--workers", 2, "--epochs", 3)
        whole = self.said(self.example("17_webdataset.py", *arguments))
        self.assertEqual([line.split(", loss")[0] for line in whole], ["rank 0, epoch %d: 16 pictures" % n for n in range(3)])
        disturbed = self.example("17_webdataset.py", *arguments)
        begin = self.line_with(disturbed, "epoch 0")
        self.kill_workers(disturbed)
        self.assertEqual([begin.rstrip(), *self.said(disturbed)], whole)
        self.assertIn("SIGKILL", self.errors)

    def test_a_program_with_libtorch_borrows_batches_and_its_loss_falls(self):
        self.need("torch", "PIL")
        import torch.utils
        package, tree = torch.utils.cmake_prefix_path, os.environ.get("PENSTOCK_TREE")
        if not os.path.exists(os.path.join(package, "Torch", "TorchConfig.cmake")) or not tree:
            self.skipTest("it needs torch's headers, and an installed penstock (tools/test-training)")
        for color in ("red", "blue"):
            self.one_color(color, 20)
        build = os.path.join(os.path.dirname(tree), "libtorch")  # kept, because compiling it takes half a minute
        cache = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        for command in (["cmake", "-S", os.path.join(EXAMPLES, "libtorch"), "-B", build, *cache,
                         "-DCMAKE_PREFIX_PATH=%s;%s" % (tree, package)], ["cmake", "--build", build]):
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.environment.pop("PENSTOCK_LIBEXEC", None)  # the program finds the workers in its build tree
        lines = self.said(self.begin(os.path.join(build, "train"), "colors", 4))  # exit code 0: the loss has fallen
        self.assertEqual([line.split(", loss")[0] for line in lines], ["epoch  %d: 40 images" % n for n in range(4)])

    def one_color(self, color, count):
        from PIL import Image
        os.makedirs(os.path.join(self.folder, "colors", color))
        for n in range(count):
            Image.new("RGB", (70 + n, 80), color).save(os.path.join(self.folder, "colors", color, "%02d.png" % n))

    def test_kubernetes_accepts_the_manifests(self):
        self.need("kubernetes_validate", "yaml")
        import kubernetes_validate
        import yaml
        manifests = glob.glob(os.path.join(EXAMPLES, "launchers", "*.yaml"))
        self.assertEqual(len(manifests), 3)
        for path in manifests:
            with open(path) as file:
                parts = list(yaml.safe_load_all(file))
            job, = [each for each in parts if each["kind"] == "Job"]
            for version in ("1.28", "1.37"):
                for each in parts:
                    kubernetes_validate.validate(each, version, strict=True)
            with self.assertRaises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate({**job, "spec": {**job["spec"], "paralelism": 4}}, "1.37", strict=True)

    def test_pods_of_the_job_for_resnet_train_together(self):
        self.need("yaml", "lightning")  # a torch with which lightning works has a torchrun with these options
        import yaml
        with open(os.path.join(EXAMPLES, "launchers", "resnet50-kubernetes.yaml")) as file:
            service, job = yaml.safe_load_all(file)
        pod = job["spec"]["template"]["spec"]
        container, = pod["containers"]
        where = "%s-0.%s" % (job["metadata"]["name"], pod["subdomain"])
        self.assertEqual((service["metadata"]["name"], job["spec"]["completionMode"]), (pod["subdomain"], "Indexed"))
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])
        command, = container["args"]
        # Two pods on one host, each with one rank.
        for what, instead in (("--nnodes %d " % job["spec"]["completions"], "--nnodes 2 "), ("--nproc-per-node 8", "--nproc-per-node 1"),
                              (where, "127.0.0.1"), ("29500", str(free_port())), ("14_resnet50", os.path.join(EXAMPLES, "14_resnet50")),
                              ("/data/imagenet", " ".join(map(str, self.small_imagenet()))), ("/data/", self.folder + "/"),
                              ("exec torchrun", "exec %s -B -m torch.distributed.run" % sys.executable)):
            self.assertIn(what, command)
            command = command.replace(what, instead)
        self.environment["PENSTOCK_GROUP_SECRET"] = "a secret of the ranks of this test"
        pods = []
        for index in range(2):
            self.environment["JOB_COMPLETION_INDEX"] = str(index)
            pods.append(self.begin(*container["command"], command))
        said = [self.said(each) for each in pods]
        self.assertEqual([len(self.epochs(lines)) for lines in said], [2, 0])
        self.assertTrue(os.path.exists(os.path.join(self.folder, "resnet50.pt")))

    def test_every_example_is_short_enough_to_read_and_says_how_to_run_it(self):
        for path in [*glob.glob(os.path.join(EXAMPLES, "*.py")), *glob.glob(os.path.join(EXAMPLES, "libtorch", "*"))]:
            name = os.path.basename(path)
            with open(path) as file:
                text = file.read()
            self.assertLessEqual(text.count("\n"), 120, name)
            if name.endswith(".py"):
                self.assertIn(name, text.split('"""')[1], "its first comment does not say how to run it")


def free_port():
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return asking.getsockname()[1]


if __name__ == "__main__":
    main()
