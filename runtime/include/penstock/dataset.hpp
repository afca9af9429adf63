// A dataset: a fixed number of samples, each of which can be loaded into memory that penstock provides.
// Implemented by the built-in datasets and by users; called only in worker processes, by one thread (expect()
// by another).
#pragma once

#include <penstock/export.hpp>
#include <penstock/random.hpp>
#include <penstock/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock {

/// What the session needs to know before the first sample. It determines the size of the shared memory;
/// workers whose description differs from the first one's are refused.
struct dataset_description {
  std::string type{};                  ///< "image-folder", or your own name for it
  std::uint64_t samples = 0;           ///< sample indices are 0 .. samples - 1
  std::vector<tensor_spec> tensors{};  ///< the same for every sample
  std::string fingerprint{};           ///< equal in two workers if and only if they see the same samples

  bool operator==(const dataset_description&) const = default;
};

/// Which worker is loading. Passed to setup(), before the first sample.
struct worker_context {
  /// 0 .. workers - 1; the sacrificial worker, which tries a suspect sample alone, has the
  /// number [loader.limits] max.
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;  ///< 1 for the first process in this place, 2 for its replacement, ...
  std::uint64_t seed = 0;         ///< [sampler] seed
};

/// One sample to load. `random` is already seeded for it. With
/// any other source of randomness, batches are not reproducible.
struct sample_request {
  std::uint64_t index = 0;
  std::uint64_t epoch = 0;
  std::uint32_t attempt = 1;  ///< 1 + deaths of workers blamed on this sample in this epoch
  random_source& random;
};

/// The length of a sample in a tensor that declares a length_rule.
struct sample_length {
  std::uint64_t entries = 0;
  std::uint64_t max = 0;  ///< 0: this tensor has no lengths
};

namespace detail {

/// Throws error (errc::usage) unless tensor < tensors.
PENSTOCK_API void require_tensor(std::size_t tensor, std::size_t tensors);

inline std::span<std::byte> element_bytes(std::span<const std::span<std::byte>> tensors, std::size_t tensor) {
  require_tensor(tensor, tensors.size());
  return tensors[tensor];
}

template <class T>
std::span<T> elements_as(std::span<const std::span<std::byte>> tensors, std::span<const tensor_spec> specs,
                         std::size_t tensor) {
  const std::span<std::byte> raw = element_bytes(tensors, tensor);
  if (tensor < specs.size()) require_element(specs[tensor].name, specs[tensor].type, element_type_of<T>());
  return {reinterpret_cast<T*>(raw.data()), raw.size() / sizeof(T)};
}

}  // namespace detail

/// Where the bytes of one sample go: one span per tensor, in the order of the description, directly in the
/// shared memory that the device reads. The bytes are undefined before load(), which must write all of them,
/// up to the length that is set.
class PENSTOCK_API sample_slot {
 public:
  /// `specs`: the description's tensors, for checking as(); without them (in your own tests) it does not
  /// check.
  explicit sample_slot(std::span<const std::span<std::byte>> tensors, std::span<sample_length> lengths = {},
                       std::span<const tensor_spec> specs = {}) noexcept
      : tensors_(tensors), lengths_(lengths), specs_(specs) {}

  /// Sets how many entries this sample has along the first axis of the tensor; the rest becomes zero. Without
  /// this call, the sample has as many as the shape says. Throws std::out_of_range for a larger number, and
  /// for a tensor whose length_rule is exact. The sample then fails with that message.
  void set_length(std::size_t tensor, std::uint64_t entries) const;

  /// Throws error (errc::usage) if there is no such tensor.
  [[nodiscard]] std::span<std::byte> bytes(std::size_t tensor) const {
    return detail::element_bytes(tensors_, tensor);
  }
  /// The tensor's elements. Throws error (errc::usage) naming both types unless is_element_of<T>(its dtype).
  template <class T>
  [[nodiscard]] std::span<T> as(std::size_t tensor) const {
    return detail::elements_as<T>(tensors_, specs_, tensor);
  }
  [[nodiscard]] std::size_t size() const noexcept { return tensors_.size(); }

 private:
  std::span<const std::span<std::byte>> tensors_;
  std::span<sample_length> lengths_;
  std::span<const tensor_spec> specs_;
};

/// All loaded samples of a batch in their slot. The rows of a tensor are contiguous, each as large as the
/// description says; samples that failed have no row.
class batch_slot {
 public:
  batch_slot(std::span<const std::span<std::byte>> tensors,
             std::span<const std::span<const std::int64_t>> lengths, std::span<const std::uint64_t> samples,
             std::span<const tensor_spec> specs = {}) noexcept
      : tensors_(tensors), lengths_(lengths), samples_(samples), specs_(specs) {}

  [[nodiscard]] std::size_t rows() const noexcept { return samples_.size(); }
  [[nodiscard]] std::span<const std::uint64_t> samples() const noexcept { return samples_; }
  [[nodiscard]] std::span<std::byte> bytes(std::size_t tensor) const {
    return detail::element_bytes(tensors_, tensor);
  }
  /// Like sample_slot::as.
  template <class T>
  [[nodiscard]] std::span<T> as(std::size_t tensor) const {
    return detail::elements_as<T>(tensors_, specs_, tensor);
  }
  /// One number per row for a tensor with a length_rule, else empty.
  [[nodiscard]] std::span<const std::int64_t> lengths(std::size_t tensor) const { return lengths_[tensor]; }

 private:
  std::span<const std::span<std::byte>> tensors_;
  std::span<const std::span<const std::int64_t>> lengths_;
  std::span<const std::uint64_t> samples_;
  std::span<const tensor_spec> specs_;
};

/// A dataset. One instance lives in each worker process; penstock calls all but expect() from one thread. A crash in it
/// ends only that process, which is replaced; the crash is blamed on the sample being loaded.
class PENSTOCK_API Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset();

  /// Called once, before any other member. An exception ends the run: the dataset as a whole is unusable.
  virtual dataset_description describe() = 0;

  /// Called once, after describe() and before the first sample. An exception ends the run, too.
  virtual void setup(const worker_context& context);

  /// Announces the samples of a batch that the worker has received, in the order of the load() calls to
  /// come. If the batch is withdrawn, load() is not called for it. A dataset on slow storage can start
  /// reading these samples. Must return soon. Called on a different thread than the other members, after
  /// setup() and possibly during load().
  virtual void expect(std::span<const std::uint64_t> samples);

  /// Fills the slot with one sample. If it throws, the sample has failed: it is reported by name and handled
  /// as [loader] on_bad_sample says; it is not tried again. Throw transient_error for storage that may
  /// recover: the sample is retried three times, with growing pauses, before it counts as failed.
  virtual void load(const sample_request& request, const sample_slot& slot) = 0;

  /// Called once for every batch with at least one row, after its last load(). May change rows in place. Take
  /// randomness only from `random`, which is keyed by the first row's sample. Then the batch is the same in
  /// every worker. If it throws, all samples of the batch have failed; a crash is blamed on the last sample.
  virtual void collate(const batch_slot& batch, random_source& random);

  /// The sample's name for people (a path, a key), shown in reports. Must be cheap; called before each load.
  [[nodiscard]] virtual std::string name_of(std::uint64_t index) const;
};

/// A transient failure of storage (EIO, ESTALE, EAGAIN, a timeout): see Dataset::load.
class PENSTOCK_API transient_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~transient_error() override;
};

}  // namespace penstock
