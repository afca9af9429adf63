// NCCL, opened at run time if a group asks for a communicator. penstock neither links it nor needs its headers. Used by
// runtime/nccl, which holds communicators, and by doctor for the version.
//
// Communicators are non-blocking (ncclConfig_t::blocking = 0): no call blocks, and their progress is polled.
// The library is the one in PENSTOCK_NCCL, else the libnccl.so.2 that the dynamic loader finds. (PyTorch's wheel has
// its own in site-packages/nvidia/nccl/lib.)
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/device/driver_library.hpp"

#include <cstdint>
#include <memory>
#include <string>

struct ncclComm;

namespace penstock::device {

/// Functions and numbers of nccl.h, unchanged since 2.18.
namespace nccl_abi {

inline constexpr std::size_t id_bytes = 128;
struct unique_id {
  char bytes[id_bytes];  // passed by value, like NCCL's own
};
enum status : int { success = 0, in_progress = 7 };
/// The beginning of ncclConfig_t. `size` tells NCCL how much of it is present; NCCL uses its defaults for the rest.
struct settings {
  std::size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cga_cluster_size;
  int ctas_min;
  int ctas_max;
  const char* net_name;
  int split_share;
};

}  // namespace nccl_abi

class nccl_library {
 public:
  /// Refuses (errc::device_unavailable) if there is no NCCL, or one older than 2.18; the text names
  /// PENSTOCK_NCCL.
  static result<std::shared_ptr<const nccl_library>> open();

  [[nodiscard]] int version() const noexcept { return version_; }  ///< 22705 is 2.27.5
  [[nodiscard]] std::string version_text() const;
  [[nodiscard]] std::string path() const { return library_.path(); }
  /// Whether this is the stand-in for tests, which works on host memory.
  [[nodiscard]] bool works_on_host() const;
  /// Creates the id of a new communicator. This process must keep running until all ranks have joined the communicator.
  result<std::string> draw_id() const;
  /// Null if the library has no such function.
  [[nodiscard]] void* function(const char* name) const;
  [[nodiscard]] std::string text_of(int status) const;

 private:
  friend class nccl_communicator;
  explicit nccl_library(const std::string& file) : library_(file) {}

  driver_library library_;
  int version_ = 0;
  int (*draw_)(nccl_abi::unique_id*) = nullptr;
  int (*begin_)(ncclComm**, int, nccl_abi::unique_id, int, nccl_abi::settings*) = nullptr;
  int (*state_)(ncclComm*, int*) = nullptr;
  int (*abort_)(ncclComm*) = nullptr;
  const char* (*text_)(int) = nullptr;
  const char* (*last_error_)(ncclComm*) = nullptr;  // null if NCCL lacks it
};

/// A communicator that exists or is being created. Not thread-safe, but state() may run concurrently with a program's calls.
class nccl_communicator {
 public:
  /// Starts to create the communicator on the calling thread's current device. Refuses an id of the wrong length, and
  /// any error that NCCL reports at once.
  static result<std::unique_ptr<nccl_communicator>> begin(std::shared_ptr<const nccl_library> library,
                                                          const std::string& id, std::uint32_t rank,
                                                          std::uint32_t world_size);
  nccl_communicator(const nccl_communicator&) = delete;
  nccl_communicator& operator=(const nccl_communicator&) = delete;
  /// Frees nothing. Without abort(), the communicator lives until the process ends.
  ~nccl_communicator() = default;

  /// True: the communicator exists, or the last call was accepted. False: still in progress. Refuses
  /// (errc::group_failed) with NCCL's error.
  [[nodiscard]] result<bool> state() const;
  [[nodiscard]] ncclComm* handle() const noexcept { return handle_; }
  /// Stops the work that uses the communicator, and frees it. May hang. The program must not be in an NCCL call.
  void abort() noexcept;

 private:
  nccl_communicator(std::shared_ptr<const nccl_library> library, ncclComm* handle)
      : library_(std::move(library)), handle_(handle) {}

  std::shared_ptr<const nccl_library> library_;
  ncclComm* handle_;
};

}  // namespace penstock::device
