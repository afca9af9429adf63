#include "actors/gpu_owner/batch_sink.hpp"

#include "actors/gpu_owner/journal_sink.hpp"
#include "actors/gpu_owner/npy_sink.hpp"
#include "actors/gpu_owner/plugin_sink.hpp"
#include "runtime/base/sink_choice.hpp"
#include "runtime/base/text.hpp"

#include <unistd.h>

#include <filesystem>

namespace penstock::gpu_owner {
namespace {

class null_sink final : public batch_sink {
 public:
  result<void> take(const Batch&) override { return {}; }
};

template <class Files>
class file_sink final : public batch_sink {
 public:
  explicit file_sink(Files files) : files_(std::move(files)) {}
  result<void> take(const Batch& batch) override { return files_.write(batch); }

 private:
  Files files_;
};

/// Wraps the opened writer as a sink.
template <class Files>
result<std::unique_ptr<batch_sink>> writing_to(result<Files> files) {
  if (!files) return tl::unexpected(std::move(files.error()));
  return std::make_unique<file_sink<Files>>(std::move(*files));
}

/// Checks the file if it exists, otherwise the folder that will contain it.
result<void> check_journal(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  const bool there = ::access(path.c_str(), F_OK) == 0;
  if (::access(there ? path.c_str() : folder.c_str(), W_OK) != 0)
    return refuse_os(errc::sink, errno, fmt::format("opening the journal '{}'", printable(path)));
  return {};
}

}  // namespace

result<void> check_sink_choice(const std::string& choice, const std::string& out) {
  const auto [kind, path] = sink_choice_in(choice);
  if (kind == sink_kind::npy && out.empty()) return refuse(errc::usage, "--sink npy needs --out DIR");
  if ((kind == sink_kind::plugin || kind == sink_kind::journal) && path.empty())
    return refuse(errc::usage, "--sink {0} needs a file; write --sink {0}PATH", choice);
  if (kind == sink_kind::unknown) return refuse(errc::usage, "unknown --sink '{}'; choose null, npy, journal:PATH or plugin:PATH", printable(choice));
  if (kind == sink_kind::npy || out.empty()) return {};
  return refuse(errc::usage, "--out '{}' needs --sink npy; --sink {} writes nothing there", printable(out), printable(choice));
}

result<void> check_sink(const std::string& choice, const std::string& out) {
  if (auto ok = check_sink_choice(choice, out); !ok) return ok;
  const auto [kind, path] = sink_choice_in(choice);
  if (kind == sink_kind::npy) {
    std::error_code status;
    std::filesystem::create_directories(out, status);
    if (status) return refuse_os(errc::sink, status.value(), fmt::format("making the folder '{}'", printable(out)));
  }
  if (kind == sink_kind::plugin && ::access(path.c_str(), R_OK) != 0)
    return refuse_os(errc::sink, errno, fmt::format("opening the device program '{}'", printable(path)));
  return kind == sink_kind::journal ? check_journal(path) : result<void>();
}

result<output_lock> lock_sink(const std::string& choice, const std::string& out) {
  const auto [kind, path] = sink_choice_in(choice);
  if (kind == sink_kind::npy) {
    std::error_code status;  // check_sink() reports the error
    std::filesystem::create_directories(out, status);
    return output_lock::of_folder(out, fmt::format("batches to '{}'", printable(out)));
  }
  return kind == sink_kind::journal ? output_lock::of_file(path, fmt::format("the journal '{}'", printable(path))) : output_lock();
}

result<std::unique_ptr<batch_sink>> make_sink(const std::string& choice, const std::string& out,
                                              const config& settings, std::shared_ptr<device::device> device,
                                              std::shared_ptr<communicator_side> communicator) {
  if (auto ok = check_sink(choice, out); !ok) return tl::unexpected(std::move(ok.error()));
  const auto [kind, path] = sink_choice_in(choice);
  if (kind == sink_kind::npy) return writing_to(npy_sink::create(out, settings));
  if (kind == sink_kind::journal) return writing_to(journal_sink::open(path));
  if (kind == sink_kind::plugin) return open_plugin(path, std::move(device), std::move(communicator));
  return std::make_unique<null_sink>();
}

}  // namespace penstock::gpu_owner
