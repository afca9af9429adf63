// A batch held by Python: its memory stays valid as long as any view of it exists (in NumPy, torch or another
// DLPack consumer), even after the session is closed.
//
// On the host device it is a copy, and the ring's buffer is returned at once. On a GPU it is the buffer
// itself: when the last view is destroyed, the buffer goes to the session's list of returned buffers. The
// session's next call releases it after the work of every stream that used it (rule P19). Destroying a
// view makes no CUDA call and needs no GIL.
#pragma once

#include <penstock/batch.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::python {

/// Reusable blocks of host memory: fresh pages would cost more than the copy. Thread-safe. Kept alive by the
/// blocks in use, even after its session.
class block_pool : public std::enable_shared_from_this<block_pool> {
 public:
  /// Keeps up to `kept` unused blocks.
  explicit block_pool(std::size_t kept) : kept_(kept) {}
  ~block_pool();
  block_pool(const block_pool&) = delete;
  block_pool& operator=(const block_pool&) = delete;
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  void give_back(std::byte* block, std::size_t bytes) noexcept;

  const std::size_t kept_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;  // size of each unused block
  std::vector<std::byte*> unused_;
};

struct leased_tensor {
  std::string name;
  dtype type = dtype::uint8;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< in elements
  void* data = nullptr;
  std::uint64_t bytes = 0;
};

class lease {
 public:
  using give_back = std::function<void(Batch, std::vector<stream_handle>)>;

  /// Copies a batch from the host device and releases it.
  lease(Batch batch, block_pool& memory);
  /// Holds a batch on a GPU; on destruction, passes it to `back`, on any thread.
  lease(Batch batch, give_back back);
  ~lease();
  lease(const lease&) = delete;
  lease& operator=(const lease&) = delete;

  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::vector<std::uint64_t> samples;
  std::vector<leased_tensor> tensors;
  std::vector<leased_tensor> records;  ///< always on the host
  int cuda_device = -1;                ///< -1: host memory

  /// Records a stream: the buffer is reused only after the work that is queued on it when the lease ends.
  void record(stream_handle stream);
  /// Returns the buffer now. Afterwards only the tensors' descriptions and the records are available.
  void release();
  /// Like release(), but only if there is no view of the buffer. For the end of the session.
  void release_unless_viewed();
  /// Records a view whose end is reported (DLPack), or one whose end is not (its address was handed out).
  /// Throws error (errc::usage) after release().
  void begin_view();
  void end_view() noexcept;
  [[nodiscard]] bool is_viewed() const;
  /// A tensor's bytes on the host. Blocks for a copy if it is on a GPU. Throws error.
  [[nodiscard]] std::vector<std::byte> read_back(std::size_t tensor) const;

 private:
  void note(const Batch& batch);
  void copy(std::span<const tensor_view> from, std::vector<leased_tensor>& to, std::byte*& at);

  std::shared_ptr<std::byte> block_;
  Batch batch_;
  give_back give_back_;
  mutable std::mutex mutex_;  // guards the members below, and give_back_
  std::vector<stream_handle> streams_;
  std::size_t views_ = 0;
  bool released_ = false;
};

/// A new DLPack object, for a capsule; the consumer calls its deleter. `tensor` belongs to the lease. Throws error like
/// begin_view().
void* make_managed_tensor(std::shared_ptr<lease> held, const leased_tensor& tensor, int cuda_device);
void* make_managed_tensor_versioned(std::shared_ptr<lease> held, const leased_tensor& tensor,
                                    int cuda_device);
/// Frees the object of a capsule that was never consumed.
void drop_managed_tensor(void* object) noexcept;
void drop_managed_tensor_versioned(void* object) noexcept;

/// The ordinal of the GPU with this memory, in CUDA's numbering in this process. Throws error.
int device_of(const void* memory);

}  // namespace penstock::python
