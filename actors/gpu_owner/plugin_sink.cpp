#include "actors/gpu_owner/plugin_sink.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/thrown.hpp"
#include "runtime/base/units.hpp"

#include <penstock/device_program.hpp>

#include <dlfcn.h>

#include <filesystem>

namespace penstock::gpu_owner {
namespace {

/// Runs the program's own code and turns an exception into a failure.
template <class Step>
auto guarded(const std::string& path, const std::string& what, Step step) -> result<decltype(step())> {
  std::string reason;
  try {
    if constexpr (std::is_void_v<decltype(step())>) {
      step();
      return {};
    } else {
      return step();
    }
  } catch (const error& e) {
    return tl::unexpected(e.as_failure());
  } catch (...) {
    reason = thrown_text();
  }
  return refuse(errc::sink, "the device program '{}' failed {}: {}", printable(path), what, reason);
}

class plugin_sink final : public batch_sink {
 public:
  plugin_sink(std::string path, std::unique_ptr<DeviceProgram> program,
              std::shared_ptr<device::device> device, std::shared_ptr<communicator_side> communicator)
      : path_(std::move(path)),
        program_(std::move(program)),
        device_(std::move(device)),
        communicator_(std::move(communicator)) {}

  result<void> take(const Batch& batch) override {
    // Use the legacy default stream: the program need not know our streams, and the copy stream does not wait
    // for it.
    const stream_handle stream{};
    const std::string which = fmt::format("with batch {} of epoch {}", batch.sequence(), batch.epoch());
    const DeviceBatch view{batch.epoch(),   batch.sequence(),   batch.samples(),
                           batch.tensors(), device_->on_host(), communicator_.get()};
    const std::uint64_t used = communicator_ ? communicator_->number() : 0;
    auto done = guarded(path_, which, [&] {
      batch.wait(stream);
      program_->on_batch(view, stream);
    });
    if (done) done = device_->finish(stream);
    // An abort ends work that waits for other ranks and leaves arbitrary values in memory.
    if (communicator_ && communicator_->is_lost(used))
      return refuse(errc::group_failed, "the communicator of the group was lost {}", which);
    return done;
  }

  [[nodiscard]] replay_rule replay() const override {
    if (!program_->keeps_state()) return replay_rule::again;
    return gives_snapshots_ ? replay_rule::from_snapshot : replay_rule::never;
  }

  result<std::vector<std::byte>> snapshot() override {
    auto taken = guarded(path_, "while making a snapshot", [&] { return program_->snapshot(); });
    if (!taken) return tl::unexpected(std::move(taken.error()));
    gives_snapshots_ = taken->has_value();
    if (!gives_snapshots_) return std::vector<std::byte>();
    if ((*taken)->size() > snapshot_bytes_max) {
      return refuse(errc::sink, "the device program '{}' returned a snapshot of {}; the limit is {}",
                    printable(path_), bytes_for_people((*taken)->size()),
                    bytes_for_people(snapshot_bytes_max));
    }
    return std::move(**taken);
  }

  result<void> restore(std::span<const std::byte> state) override {
    return guarded(path_, "while restoring its snapshot", [&] { program_->restore(state); });
  }

  result<void> finish() override {
    return guarded(path_, "while finishing", [&] { program_->finish(); });
  }

 private:
  std::string path_;
  std::unique_ptr<DeviceProgram> program_;  // its code stays loaded: unloading gains nothing
  std::shared_ptr<device::device> device_;
  std::shared_ptr<communicator_side> communicator_;  // null: the group has none
  bool gives_snapshots_ = true;                      // false once the program has declined to give one
};

}  // namespace

result<std::unique_ptr<batch_sink>> open_plugin(const std::string& path,
                                                std::shared_ptr<device::device> device,
                                                std::shared_ptr<communicator_side> communicator) {
  // Without a slash in the name, dlopen() would search the system's library folders.
  const std::string absolute = std::filesystem::absolute(path).native();
  void* const library = ::dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return refuse(errc::sink, "opening the device program: {}", ::dlerror());
  const auto* entry = static_cast<const device_program_entry*>(::dlsym(library, "penstock_device_program"));
  if (entry == nullptr) {
    return refuse(errc::sink, "'{}' is not a device program: it lacks PENSTOCK_DEVICE_PROGRAM(...)",
                  printable(path));
  }
  if (entry->version != device_program_version) {
    return refuse(errc::sink,
                  "the device program '{}' was built for interface {}, but this penstock has {}: rebuild it",
                  printable(path), entry->version, device_program_version);
  }
  // The program allocates and launches on this thread's current device.
  if (auto entered = device->enter_programs(); !entered) return tl::unexpected(std::move(entered.error()));
  auto made = guarded(path, "while starting", [&] { return std::unique_ptr<DeviceProgram>(entry->make()); });
  if (!made) return tl::unexpected(std::move(made.error()));
  return std::make_unique<plugin_sink>(path, std::move(*made), std::move(device), std::move(communicator));
}

}  // namespace penstock::gpu_owner
