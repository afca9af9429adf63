#include "actors/gpu_owner/batch_sink.hpp"

#include "actors/gpu_owner/npy_sink.hpp"
#include "actors/gpu_owner/plugin_sink.hpp"
#include "runtime/base/text.hpp"

#include <unistd.h>

namespace penstock::gpu_owner {
namespace {

constexpr std::string_view plugin_prefix = "plugin:";

class null_sink final : public batch_sink {
 public:
  result<void> take(const Batch&) override { return {}; }
};

class file_sink final : public batch_sink {
 public:
  explicit file_sink(npy_sink files) : files_(std::move(files)) {}
  result<void> take(const Batch& batch) override { return files_.write(batch); }

 private:
  npy_sink files_;
};

}  // namespace

result<void> check_sink(const std::string& choice, const std::string& out) {
  if (choice == "null") return {};
  if (choice == "npy") {
    if (out.empty()) return refuse(errc::usage, "--sink npy needs --out DIR");
    if (auto made = npy_sink::create(out); !made) return tl::unexpected(std::move(made.error()));
    return {};
  }
  if (choice.starts_with(plugin_prefix)) {
    const std::string path = choice.substr(plugin_prefix.size());
    if (::access(path.c_str(), R_OK) != 0)
      return refuse_os(errc::sink, errno, fmt::format("opening the device program '{}'", printable(path)));
    return {};
  }
  return refuse(errc::usage, "--sink '{}' is unknown; there is: null, npy, plugin:PATH", printable(choice));
}

result<std::unique_ptr<batch_sink>> make_sink(const std::string& choice, const std::string& out,
                                              std::shared_ptr<device::device> device) {
  if (auto ok = check_sink(choice, out); !ok) return tl::unexpected(std::move(ok.error()));
  if (choice == "npy") {
    auto made = npy_sink::create(out);
    if (!made) return tl::unexpected(std::move(made.error()));
    return std::make_unique<file_sink>(std::move(*made));
  }
  if (choice.starts_with(plugin_prefix))
    return open_plugin(choice.substr(plugin_prefix.size()), std::move(device));
  return std::make_unique<null_sink>();
}

}  // namespace penstock::gpu_owner
