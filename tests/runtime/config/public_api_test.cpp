// load_config as an embedding program calls it.
#include "support.hpp"

#include <penstock/config.hpp>
#include <penstock/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <stdlib.h>

using namespace penstock;
using namespace penstock::config_file::testing;

namespace {

template <class Call>
failure failure_of(Call call) {
  try {
    call();
  } catch (const error& thrown) {
    return thrown.as_failure();
  }
  return {errc::stopped, "nothing was thrown", 0};
}

}  // namespace

TEST_CASE("load_config reads a file with the process's environment and folder") {
  const temporary_folder folder;
  const auto file = folder.write("photos.toml", "[dataset]\npath = \"${env:PENSTOCK_TEST_DATA}/train\"\n");
  REQUIRE(::setenv("PENSTOCK_TEST_DATA", "/data", 1) == 0);
  REQUIRE(::setenv("PENSTOCK__LOADER__WORKERS", "2", 1) == 0);
  const config values = load_config(file);
  const config overridden = load_config(file, {"loader.workers=5", "quarantine.file=bad.json"});
  REQUIRE(::unsetenv("PENSTOCK__LOADER__WORKERS") == 0);
  CHECK(values.name == "photos");
  CHECK(values.dataset.path == "/data/train");
  CHECK(values.loader.workers == 2U);
  CHECK(overridden.loader.workers == 5U);
  CHECK(overridden.quarantine.file == (std::filesystem::current_path() / "bad.json").string());
}

TEST_CASE("load_config accepts a custom dataset without a worker program, which the program may set afterwards") {
  const temporary_folder folder;
  const config values = load_config(folder.write("own.toml", "[dataset]\ntype = \"custom\"\n"));
  CHECK(values.loader.command == loader_config().command);
}

TEST_CASE("load_config throws all mistakes in one error, rendered without colour") {
  const temporary_folder folder;
  const auto file =
      folder.write("photos.toml", "[dataset]\ntype = \"synthetic\"\n[loader]\nwokers = 3\nstart = \"now\"\n");
  const failure thrown = failure_of([&] { load_config(file); });
  CHECK(thrown.code == errc::config);
  CHECK(thrown.message.find("photos.toml:4:1") != std::string::npos);
  CHECK(thrown.message.find("photos.toml:5:9") != std::string::npos);
  CHECK(thrown.message.find('\x1b') == std::string::npos);
  CHECK(thrown.message.starts_with("unknown key 'wokers' in [loader]\n"));
  CHECK_FALSE(thrown.message.ends_with('\n'));
}

TEST_CASE("load_config reports an unreadable file with a different code") {
  const failure thrown = failure_of([] { load_config("/nowhere/at/all.toml"); });
  CHECK(thrown.code == errc::io);
  CHECK(thrown.os_code == ENOENT);
  CHECK(thrown.message.find("cannot read /nowhere/at/all.toml: No such file or directory") !=
        std::string::npos);
}
