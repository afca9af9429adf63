// Merging: precedence, includes, paths, names, and where each value came from.
#include "runtime/config/load.hpp"

#include "runtime/config/foreign_names.hpp"
#include "runtime/config/key_table.hpp"
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <cerrno>
#include <sstream>

using namespace penstock;
using namespace penstock::config_file;
using namespace penstock::config_file::testing;
using namespace std::chrono_literals;

namespace {
const std::string synthetic = "[dataset]\ntype = \"synthetic\"\n";
}

TEST_CASE("a size whose key contains \"bytes\" may be a plain number, and every other size needs its unit") {
  const auto good = load_text("[dataset]\ntype = \"synthetic\"\nsamples = 8\nbytes_per_sample = 65536\n");
  REQUIRE(good);
  CHECK(good->values.dataset.bytes_per_sample == byte_size{65536});
  CHECK_FALSE(load_text("[dataset]\ntype = \"synthetic\"\nsamples = 8\nbytes_per_sample = 0\n"));
  CHECK_FALSE(load_text("[dataset]\ntype = \"synthetic\"\nsamples = 8\nbytes_per_sample = -1\n"));
  CHECK_FALSE(load_text(
      "[dataset]\ntype = \"synthetic\"\nsamples = 8\nbytes_per_sample = 9\n[loader]\nslot_bytes = 65536\n"));
}

TEST_CASE("references can produce numbers and booleans") {
  const auto good = load_text(
      "[dataset]\ntype = \"synthetic\"\nshape = [\"${env:SIDE}\", 4]\n[image]\nflip = \"${env:FLIP:-0.25}\"\n"
      "[sampler]\nbatch_size = \"1${env:SIDE}\"\nshuffle = \"${env:NO}\"\n[loader]\nworkers = "
      "\"${env:SIDE}\"\n",
      {{"SIDE", "6"}, {"NO", "false"}});
  INFO(complaints_of(good));
  REQUIRE(good);
  CHECK(good->values.dataset.shape == std::vector<std::uint32_t>{6, 4});
  CHECK(good->values.image.flip == 0.25);
  CHECK(good->values.sampler.batch_size == 16);
  CHECK_FALSE(good->values.sampler.shuffle);
  CHECK(good->values.loader.workers == 6);
}

TEST_CASE("a name from another loader gets a hint with our name for it, or the reason why there is none") {
  const std::string complaints = complaints_of(load_text(
      synthetic +
      "[loader]\nprefetch_factor = 2\npin_memory = true\ncollate_fn = \"f\"\n[gpu]\ndtype = \"fp16\"\n"));
  INFO(complaints);
  CHECK(complaints.find("batches that each worker prepares ahead") != std::string::npos);
  CHECK(complaints.find("already page-locked for the device") != std::string::npos);
  CHECK(complaints.find("Dataset::setup, load or collate") != std::string::npos);
  CHECK(complaints.find("did you mean \"float16\"?") != std::string::npos);
  CHECK(complaints.find("dtype is one of \"uint8\", \"float16\", \"bfloat16\" or \"float32\"\n") !=
        std::string::npos);
  CHECK(complaints_of(load_text(synthetic, {{"PENSTOCK__LOADER__NUM_WORKERS", "4"}}))
            .find("did you mean PENSTOCK__LOADER__WORKERS?") != std::string::npos);
}

TEST_CASE("each known name from another loader maps to an existing key, and is not itself a key of that table or its parents") {
  for (const foreign_name& one : foreign_names()) {
    CHECK((one.key.empty() ? !one.note.empty() : key_table::get().find(one.key) != nullptr));
    std::istringstream names{std::string(one.names)};
    for (std::string name; names >> name;) {
      INFO(name);
      CHECK(foreign_key(name) == &one);
      for (const key_info& key : key_table::get().keys())
        CHECK((key.name != name || !one.key.starts_with(key.table)));
    }
  }
}

TEST_CASE("an absent key has its default, and its origin says so") {
  const loading result = load_text(synthetic);
  REQUIRE(result);
  penstock::config expected;
  expected.name = "test";
  expected.dataset.type = dataset_type::synthetic;
  CHECK(result->values == expected);
  CHECK(result->source_of("loader.workers").text() == "default");
  CHECK(result->source_of("dataset.type").text() == "test.toml:2");
  CHECK(result->source_of("name").text() == "from the file's name");
}

TEST_CASE("every kind of value is read as written") {
  const loading result = load_text(R"(
name = "a.b_c-1"
[dataset]
type = "raw"
path = "/x"
shape = [3, 0x20, 1_0]
dtype = "bfloat16"
[image]
size = [7, 9]
scale = [0.5, 1]
[sampler]
shuffle = false
seed = 9223372036854775807
[loader]
workers = 3
slot_bytes = "1.5MiB"
command = ["w", "--x", ""]
[loader.hang]
item_timeout = "1.5s"
[loader.restart]
backoff.factor = 3
[gpu]
dtype = "float32"
mean = [0, 1, -2.5]
[loader.env]
"A B" = "c"
)");
  INFO(complaints_of(result));
  REQUIRE(result);
  const penstock::config& values = result->values;
  CHECK(values.name == "a.b_c-1");
  CHECK(values.dataset.type == dataset_type::raw);
  CHECK(values.dataset.shape == std::vector<std::uint32_t>{3, 32, 10});
  CHECK(values.dataset.dtype == dtype::bfloat16);
  CHECK(values.image.size == size_2d{7, 9});
  CHECK(values.image.scale == range_2d{0.5, 1.0});
  CHECK_FALSE(values.sampler.shuffle);
  CHECK(values.sampler.seed == 9223372036854775807ULL);
  CHECK(values.loader.workers == 3U);
  CHECK(values.loader.slot_bytes == byte_size{1536 * 1024});
  CHECK(values.loader.command == std::vector<std::string>{"w", "--x", ""});
  CHECK(values.loader.hang.item_timeout == 1500ms);
  CHECK(values.loader.restart.backoff.factor == 3.0);
  CHECK(values.gpu.dtype == dtype::float32);
  CHECK(values.gpu.mean == rgb_values{0, 1, -2.5});
  CHECK(values.loader.env == string_map{{"A B", "c"}, {"OMP_NUM_THREADS", "1"}});
}

TEST_CASE("the word auto means no value") {
  const loading result = load_text(
      synthetic + "bytes_per_sample = \"auto\"\n[loader]\nworkers = \"auto\"\nslot_bytes = \"auto\"\n");
  REQUIRE(result);
  CHECK_FALSE(result->values.loader.workers.has_value());
  CHECK_FALSE(result->values.loader.slot_bytes.has_value());
  CHECK_FALSE(result->values.dataset.bytes_per_sample.has_value());
}

TEST_CASE("a key that takes a number or auto takes a reference to either") {
  const std::string text = synthetic + "[loader]\nworkers = \"${env:WORKERS:-auto}\"\n";
  loading result = load_text(text);
  REQUIRE(result);
  CHECK_FALSE(result->values.loader.workers.has_value());
  result = load_text(text, {{"WORKERS", "6"}});
  REQUIRE(result);
  CHECK(result->values.loader.workers == 6U);
  for (const char* no : {"-1", "6x", "1e1", "0x6", "", "4294967296", "0"}) {
    INFO(no);
    CHECK_FALSE(load_text(text, {{"WORKERS", std::string(no).empty() ? " " : no}}));
  }
  // A quoted number without a reference is a mistake.
  CHECK_FALSE(load_text(synthetic + "[loader]\nworkers = \"6\"\n"));
}

TEST_CASE("the hint for a wrong choice lists what this key accepts, not what its type has") {
  const loading result = load_text(synthetic + "[gpu]\ndtype = \"fp16\"\n");
  REQUIRE_FALSE(result);
  CHECK(result.error().diagnostics[0].help ==
        R"(dtype is one of "uint8", "float16", "bfloat16" or "float32")");
}

TEST_CASE("every kind of fault has a spelling") {
  const loading result = load_text(synthetic + R"(faults = [
    { kind = "segv" }, { kind = "abort" }, { kind = "exit" }, { kind = "kill" }, { kind = "hang" }, { kind = "throw" },
    { kind = "leak" }, { kind = "stop" }, { kind = "slow", seconds = 2, sample = 9, times = 0 } ]
)");
  INFO(complaints_of(result));
  REQUIRE(result);
  const std::vector<fault_config>& faults = result->values.dataset.faults;
  REQUIRE(faults.size() == 9);
  for (std::size_t i = 0; i < faults.size(); ++i) CHECK(faults[i].kind == static_cast<fault_kind>(i));
  CHECK(faults[5].kind == fault_kind::raise);
  CHECK(faults[8] == fault_config{9, fault_kind::slow, 0, 2.0});
}

TEST_CASE("a value of higher precedence wins: default, include, file, environment, --set") {
  const temporary_folder folder;
  folder.write("base.toml", "[sampler]\nseed = 1\nepochs = 1\nbatch_size = 1\n[loader]\nworkers = 1\n");
  const std::string main =
      "include = [\"base.toml\"]\n" + synthetic + "[sampler]\nseed = 2\nepochs = 2\nbatch_size = 2\n";
  const environment_list environment{{"PENSTOCK__SAMPLER__SEED", "3"}, {"PENSTOCK__SAMPLER__EPOCHS", "3"}};
  const loading result = load_text(folder, main, environment, {"sampler.seed=4"});
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.sampler.seed == 4);
  CHECK(result->values.sampler.epochs == 3);
  CHECK(result->values.sampler.batch_size == 2);
  CHECK(result->values.loader.workers == 1U);
  CHECK_FALSE(result->values.loader.slots_per_worker);
  CHECK(result->source_of("sampler.seed").text() == "--set");
  CHECK(result->source_of("sampler.epochs").text() == "environment PENSTOCK__SAMPLER__EPOCHS");
  CHECK(result->source_of("sampler.batch_size").text() == "test.toml:7");
  CHECK(result->source_of("loader.workers").text() == "include base.toml:6");
  CHECK(result->included == std::vector<std::string>{"base.toml"});
  CHECK(result->values.include.empty());
}

TEST_CASE(
    "a later include overrides an earlier one and its includes, per entry in tables with user-defined keys") {
  const temporary_folder folder;
  folder.write("a/first.toml",
               "include = [\"../b/inner.toml\"]\n[loader.env]\nX = \"first\"\nY = \"first\"\n");
  folder.write("b/inner.toml",
               "[sampler]\nseed = 7\nepochs = 7\n[loader.env]\nX = \"inner\"\nZ = \"inner\"\n");
  folder.write("second.toml", "[sampler]\nseed = 8\n[loader.env]\nY = \"second\"\n");
  const loading result = load_text(folder, "include = [\"a/first.toml\", \"second.toml\"]\n" + synthetic);
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.sampler.seed == 8);
  CHECK(result->values.sampler.epochs == 7);
  CHECK(result->values.loader.env ==
        string_map{{"OMP_NUM_THREADS", "1"}, {"X", "first"}, {"Y", "second"}, {"Z", "inner"}});
  CHECK(result->source_of("loader.env.Z").text() == "include b/inner.toml:6");
  CHECK(result->included == std::vector<std::string>{"b/inner.toml", "a/first.toml", "second.toml"});
}

TEST_CASE("an array replaces an array") {
  const temporary_folder folder;
  folder.write("base.toml",
               "[dataset]\nfaults = [{ sample = 1 }, { sample = 2 }]\n[loader]\ncommand = [\"a\", \"b\"]\n");
  const loading result = load_text(folder, "include = [\"base.toml\"]\n" + synthetic +
                                               "faults = [{ sample = 3 }]\n[loader]\ncommand = [\"c\"]\n");
  INFO(complaints_of(result));
  REQUIRE(result);
  CHECK(result->values.dataset.faults.size() == 1);
  CHECK(result->values.loader.command == std::vector<std::string>{"c"});
}

TEST_CASE("a relative path is relative to the file that contains it") {
  const temporary_folder folder;
  folder.write(
      "parts/base.toml",
      "[dataset]\npath = \"pictures/../train/\"\n[loader]\ncommand = [\"./worker\", \"./argument\"]\n");
  const loading result =
      load_text(folder, "include = [\"parts/base.toml\"]\n[quarantine]\nfile = \"bad.json\"\n");
  REQUIRE(result);
  CHECK(result->values.dataset.path == (folder.path() / "parts/train").string());
  CHECK(result->values.quarantine.file == (folder.path() / "bad.json").string());
  CHECK(result->values.loader.command ==
        std::vector<std::string>{(folder.path() / "parts/worker").string(), "./argument"});
}

TEST_CASE("a relative path from the environment or --set is relative to the working folder") {
  const temporary_folder folder;
  folder.write("deep/test.toml", "[dataset]\npath = \"x\"\n");
  source_request request;
  request.file = "deep/test.toml";
  request.working_folder = folder.path();
  request.environment = {{"PENSTOCK__QUARANTINE__FILE", "q.json"}};
  request.overrides = {{"dataset.path=data"}};
  const loading result = load(request);
  REQUIRE(result);
  CHECK(result->values.dataset.path == (folder.path() / "data").string());
  CHECK(result->values.quarantine.file == (folder.path() / "q.json").string());
}

TEST_CASE("absolute paths, empty paths and plain program names stay as they are") {
  const loading result = load_text(
      "[dataset]\npath = \"/data\"\n[quarantine]\nfile = \"\"\n[loader]\ncommand = [\"my-worker\"]\n");
  REQUIRE(result);
  CHECK(result->values.dataset.path == "/data");
  CHECK(result->values.quarantine.file.empty());
  CHECK(result->values.loader.command == std::vector<std::string>{"my-worker"});
}

TEST_CASE("a session without a name is named after its file") {
  const temporary_folder folder;
  const auto name_for = [&](const std::string& file) {
    folder.write(file, synthetic);
    source_request request;
    request.file = file;
    request.working_folder = folder.path();
    const loading result = load(request);
    REQUIRE(result);
    return result->values.name;
  };
  CHECK(name_for("photos.toml") == "photos");
  CHECK(name_for("photos.train.toml") == "photos.train");
  CHECK(name_for("my photos (1).toml") == "my-photos--1-");
  CHECK(name_for("-.hidden.toml") == "hidden");
  CHECK(name_for("größe.toml") == "gr----e");
  CHECK(name_for(std::string(100, 'x') + ".toml") == std::string(64, 'x'));
  CHECK(name_for("---.toml") == "penstock");
}

TEST_CASE("includes nested sixteen deep are read, seventeen are refused") {
  const temporary_folder folder;
  for (int depth = 1; depth <= 17; ++depth) {
    const std::string next = depth < 17 ? fmt::format("include = [\"{}.toml\"]\n", depth + 1) : "";
    folder.write(std::to_string(depth) + ".toml", fmt::format("{}[sampler]\nepochs = {}\n", next, depth));
  }
  CHECK(load_text(folder, "include = [\"2.toml\"]\n" + synthetic).has_value());
  const loading result = load_text(folder, "include = [\"1.toml\"]\n" + synthetic);
  REQUIRE_FALSE(result);
  REQUIRE(result.error().diagnostics.size() == 1);
  CHECK(result.error().diagnostics[0].message == "includes are nested more than 16 deep");
  CHECK(result.error().diagnostics[0].where.origin == "16.toml");
}

TEST_CASE("a chain of includes that doubles at each step ends quickly in one diagnostic") {
  const temporary_folder folder;
  for (int depth = 1; depth <= 15; ++depth) {
    const std::string next = std::to_string(depth + 1) + ".toml";
    folder.write(std::to_string(depth) + ".toml", "include = [\"" + next + "\", \"" + next + "\"]\n");
  }
  folder.write("16.toml", "");
  const loading result = load_text(folder, "include = [\"1.toml\"]\n" + synthetic);
  REQUIRE_FALSE(result);
  REQUIRE(result.error().diagnostics.size() == 1);
  CHECK(result.error().diagnostics[0].message == "more than 256 includes");
}

TEST_CASE("an include cycle through a symbolic link is detected") {
  const temporary_folder folder;
  folder.write("a.toml", "include = [\"link.toml\"]\n");
  std::filesystem::create_symlink("a.toml", folder.path() / "link.toml");
  const loading result = load_text(folder, "include = [\"a.toml\"]\n" + synthetic);
  REQUIRE_FALSE(result);
  CHECK(result.error().diagnostics[0].help == "a.toml -> a.toml");
}

TEST_CASE("a missing file, or a folder in its place, is an I/O error") {
  const temporary_folder folder;
  source_request request;
  request.working_folder = folder.path();
  request.file = "nowhere.toml";
  loading result = load(request);
  REQUIRE_FALSE(result);
  CHECK(result.error().code == errc::io);
  CHECK(result.error().os_code == ENOENT);
  REQUIRE(result.error().diagnostics.size() == 1);
  CHECK(result.error().diagnostics[0].message == "cannot read nowhere.toml: No such file or directory");
  request.file = ".";
  result = load(request);
  REQUIRE_FALSE(result);
  CHECK(result.error().os_code == EISDIR);
  CHECK(result.error().diagnostics[0].message == "cannot read .: it is a folder; a config file is a TOML file");
}

TEST_CASE("mistakes on the command line are reported even when the file is missing") {
  source_request request;
  request.file = "/nowhere/at/all.toml";
  request.working_folder = "/";
  request.overrides = {{"loader.wokers=3"}};
  const loading result = load(request);
  REQUIRE_FALSE(result);
  CHECK(result.error().code == errc::io);
  REQUIRE(result.error().diagnostics.size() == 2);
  CHECK(result.error().diagnostics[1].message == "unknown key 'wokers' in [loader]");
}

TEST_CASE("a file of one mebibyte is read, and a larger one is refused") {
  std::string text = synthetic + "#";
  text.resize(1 << 20, 'x');
  CHECK(load_text(text).has_value());
  text += 'x';
  const loading result = load_text(text);
  REQUIRE_FALSE(result);
  CHECK(result.error().code == errc::io);
  CHECK(result.error().diagnostics[0].message == "cannot read test.toml: larger than 1.00 MiB");
}

TEST_CASE("texts made to exhaust the stack or to take very long are refused at once") {
  std::string dotted = "a";
  for (int i = 0; i < 100'000; ++i) dotted += ".a";
  CHECK_FALSE(load_text(dotted + " = 1\n").has_value());
  CHECK_FALSE(load_text(fmt::format("x = {}", std::string(100'000, '['))).has_value());
  std::string braces;
  for (int i = 0; i < 50'000; ++i) braces += "{a=";
  CHECK_FALSE(load_text(fmt::format("x = {}", braces)).has_value());
  CHECK_FALSE(load_text(fmt::format("x = \"{}", std::string(500'000, '\\'))).has_value());
  std::string nested;
  for (int i = 0; i < 1000; ++i) {
    nested += fmt::format("k{} = ", i);
    for (int depth = 0; depth < 150; ++depth) nested += "{a=";
    nested += std::string("1").append(150, '}').append("\n");
  }
  CHECK_FALSE(load_text(nested).has_value());
  std::string headers = synthetic;
  for (int i = 0; i < 90'000; ++i) headers += "[dataset]\n";
  CHECK_FALSE(load_text(headers).has_value());
}

TEST_CASE("of very many mistakes the first five hundred are shown, even if all are in one very long line") {
  std::string lines;
  std::string one_line = "x = { a0 = 1";
  for (int i = 0; i < 20'000; ++i) {
    lines += fmt::format("k{} = 1\n", i);
    one_line += fmt::format(", a{} = 1", i + 1);
  }
  loading result = load_text(lines + synthetic);
  REQUIRE_FALSE(result);
  REQUIRE(result.error().diagnostics.size() == 501);
  CHECK(result.error().diagnostics[0].message == "more than 500 mistakes: the rest is not shown");
  result = load_text(fmt::format("loader = {} }}\n{}", one_line.substr(4), synthetic));
  REQUIRE_FALSE(result);
  REQUIRE(result.error().diagnostics.size() == 501);
  CHECK(render(result.error().diagnostics, colour::off).size() < 300'000);
  CHECK(result.error().diagnostics.back().where.source_line.size() < 3000);
}

TEST_CASE("a name or a value of half a megabyte does not make a message long") {
  const std::string much(500'000, 'x');
  for (const std::string& text :
       {much + " = 1\n", "name = \"" + much + "\"\n", "name = \"${" + much + "}\"\n",
        "name = \"${env:" + much + "}\"\n", "log.level = \"" + much + "\"\n",
        "supervisor.shutdown = \"" + much + "\"\n", "name = " + much + "\n"}) {
    const loading result = load_text(text);
    REQUIRE_FALSE(result);
    CHECK(render(result.error().diagnostics, colour::off).size() < 6000);
  }
}

TEST_CASE("rank \"auto\" takes rank and size from the first launcher that set them") {
  const std::string text = synthetic + "[sampler]\nrank = \"auto\"\n";
  loading result =
      load_text(text, {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
  REQUIRE(result);
  CHECK(result->values.sampler.rank == 1U);
  CHECK(result->values.sampler.world_size == 2);
  CHECK(result->source_of("sampler.world_size").text() == "from RANK and WORLD_SIZE");
  result = load_text(text, {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}});
  REQUIRE(result);
  CHECK(result->values.sampler.rank == 3U);
  result = load_text(text, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  REQUIRE(result);
  CHECK(result->source_of("sampler.rank").text() == "from OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE");
}

TEST_CASE("under mpirun in a Slurm allocation rank \"auto\" is the rank, not the allocation's task 0") {
  const loading result =
      load_text(synthetic + "[sampler]\nrank = \"auto\"\n", {{"SLURM_PROCID", "0"},
                                                             {"SLURM_NTASKS", "4"},
                                                             {"OMPI_COMM_WORLD_RANK", "3"},
                                                             {"OMPI_COMM_WORLD_SIZE", "4"}});
  REQUIRE(result);
  CHECK(result->values.sampler.rank == 3U);
}

TEST_CASE("a warning is an error under strict") {
  const temporary_folder folder;
  source_request request;
  request.file = folder.write("test.toml", synthetic + "[image]\nsize = [1, 1]\n");
  request.working_folder = folder.path();
  CHECK(load(request)->warnings.size() == 1);
  request.strict = true;
  const loading result = load(request);
  REQUIRE_FALSE(result);
  CHECK(result.error().diagnostics[0].level == severity::error);
}

TEST_CASE("a file with [jobs] and without [dataset] configures a pool, which needs no data") {
  const loading pool =
      load_text("[jobs]\nqueue = 7\ntimeout = \"90s\"\n[loader]\ncommand = [\"./functions\"]\n");
  REQUIRE(pool);
  CHECK(pool->values.jobs.queue == 7);
  CHECK(pool->values.jobs.timeout == std::chrono::seconds(90));
  const loading unlimited = load_text("[jobs]\ntimeout = \"none\"\n");
  REQUIRE(unlimited);
  CHECK(!unlimited->values.jobs.timeout);
  CHECK(complaints_of(load_text("[jobs]\ntimeout = \"auto\"\n")).find("or \"none\"") != std::string::npos);
  // With [dataset], the file configures a stream, and a stream needs a path to its data.
  CHECK(complaints_of(load_text("[jobs]\nqueue = 7\n[dataset]\ntype = \"image-folder\"\n"))
            .find("'path' in [dataset] is missing") != std::string::npos);
}

TEST_CASE("the caller can decide what a config is for, whatever tables the file has") {
  const temporary_folder folder;
  source_request request;
  request.working_folder = folder.path();
  request.file = folder.write("both.toml", "[jobs]\nqueue = 7\n[dataset]\ntype = \"image-folder\"\n");
  CHECK_FALSE(load(request));
  request.purpose = config_purpose::jobs;
  const auto pool = load(request);
  INFO(complaints_of(pool));
  REQUIRE(pool);
  CHECK(pool->values.jobs.queue == 7);
  request.file = folder.write("neither.toml", "[loader]\nworkers = 3\n");
  CHECK(load(request));
  request.purpose = config_purpose::stream;
  CHECK_FALSE(load(request));
}

TEST_CASE("without a file the config comes from the environment and the overrides") {
  const temporary_folder folder;
  source_request request;
  request.working_folder = folder.path();
  request.purpose = config_purpose::jobs;
  request.environment = {{"PENSTOCK__LOADER__WORKERS", "3"}};
  request.overrides = {{"jobs.queue=7"}, {"loader.command=[\"./functions\"]"}};
  const auto made = load(request);
  INFO(complaints_of(made));
  REQUIRE(made);
  CHECK(made->values.loader.workers == 3);
  CHECK(made->values.jobs.queue == 7);
  CHECK(made->values.loader.command.front() == (folder.path() / "functions").string());
  request.overrides = {{"jobs.quue=7"}};
  CHECK(complaints_of(load(request)).find("queue") != std::string::npos);
}
