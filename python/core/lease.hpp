// A batch as Python holds it: memory that stays valid as long as any view of it lives, whoever holds the view (NumPy,
// torch, a DLPack consumer), also after the session is closed.
//
// On the host device it is a copy, and the ring's buffer is returned at once. On a GPU it is the buffer itself: when
// the last view is gone the buffer goes to the session's list of returned buffers, whose next call releases it, behind
// the work of every stream that used it (semantics 52). The end of a view makes no CUDA call and needs no GIL.
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

/// Blocks of host memory that are used again, since fresh pages cost more than the copy. Thread-safe; outlives its
/// session in the blocks that it gave out.
class block_pool : public std::enable_shared_from_this<block_pool> {
 public:
  /// Keeps so many unused blocks.
  explicit block_pool(std::size_t kept) : kept_(kept) {}
  ~block_pool();
  block_pool(const block_pool&) = delete;
  block_pool& operator=(const block_pool&) = delete;
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  void give_back(std::byte* block, std::size_t bytes) noexcept;

  const std::size_t kept_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;  // of each unused block
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

  /// Copies a batch of the host device and releases it.
  lease(Batch batch, block_pool& memory);
  /// Holds a batch of a GPU, and calls `back` with it at the end, on any thread.
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

  /// The buffer returns to the ring behind the work that is on this stream at the end.
  void record(stream_handle stream);
  /// Gives the buffer back now. From here on tensors are only described, and records are still there.
  void release();
  /// The same, if nobody has a view of the buffer. For the end of the session.
  void release_unless_viewed();
  /// Notes a view that ends (DLPack), or one of whose end nobody hears (its address was given out). Throws error
  /// (errc::usage) after release().
  void begin_view();
  void end_view() noexcept;
  /// A tensor's bytes on the host: waits for a copy if it is on a GPU. Throws error.
  [[nodiscard]] std::vector<std::byte> read_back(std::size_t tensor) const;

 private:
  void note(const Batch& batch);
  void copy(std::span<const tensor_view> from, std::vector<leased_tensor>& to, std::byte*& at);

  std::shared_ptr<std::byte> block_;
  Batch batch_;
  give_back give_back_;
  mutable std::mutex mutex_;  // guards what follows, and give_back_
  std::vector<stream_handle> streams_;
  std::size_t views_ = 0;
  bool released_ = false;
};

/// A new DLPack object, for a capsule; the consumer calls its deleter. `tensor` is one of the lease's. Throws error as
/// begin_view().
void* make_managed_tensor(std::shared_ptr<lease> held, const leased_tensor& tensor, int cuda_device);
void* make_managed_tensor_versioned(std::shared_ptr<lease> held, const leased_tensor& tensor,
                                    int cuda_device);
/// For capsules that nobody has consumed.
void drop_managed_tensor(void* object) noexcept;
void drop_managed_tensor_versioned(void* object) noexcept;

/// The number of the GPU that this memory lies on, as CUDA counts in this process. Throws error.
int device_of(const void* memory);

}  // namespace penstock::python
