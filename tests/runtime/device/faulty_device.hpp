// A decorator for a device: records each call with its thread, checks that no copy overwrites memory in use,
// and fails or hangs on demand. For tests of the owner actor.
#pragma once

#include "runtime/device/device.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

namespace penstock::device_test {

/// "The third poll fails with CUDA error 700, and all calls after it."
struct fault {
  std::string call;  ///< open, attach, allocate, submit, poll
  int number = 1;    ///< counted from 1
  failure why{errc::device_poisoned, "copying a batch, or an earlier operation: an illegal memory access was encountered", 700};
  bool sticky = true;
};

class faulty_device final : public device::device {
 public:
  explicit faulty_device(std::unique_ptr<penstock::device::device> inner) : inner_(std::move(inner)) {}

  // Call before the owner starts.
  void fail(fault how) { fault_ = std::move(how); }
  /// Copies start, but poll() never reports them.
  void hang() { hangs_ = true; }
  /// The third poll() from now on blocks its thread, the owner's, until go_on(). It and the next two polls report nothing; after that
  /// everything works again.
  void hang_and_stand_still() {
    hangs_ = true;
    polls_until_standing_ = 3;
  }
  void wait_until_it_stands() const { standing_.wait(false); }
  void go_on() {
    goes_on_ = true;
    goes_on_.notify_all();
  }
  void say_that_it_waits_for_the_consumer(bool waits) { waits_ = waits; }
  /// Refuses the next `count` releases, as while the program captures a stream.
  void refuse_releases(int count) { refused_releases_ = count; }

  // What was recorded.
  [[nodiscard]] std::set<std::thread::id> threads() const {
    const std::lock_guard hold(mutex_);
    return threads_;
  }
  [[nodiscard]] int calls(const std::string& name) const {
    const std::lock_guard hold(mutex_);
    const auto it = calls_.find(name);
    return it == calls_.end() ? 0 : it->second;
  }
  [[nodiscard]] int calls_after_a_sticky_error() const {
    const std::lock_guard hold(mutex_);
    return late_calls_;
  }
  /// Whether a buffer was written while the consumer held it, or a slot had two readers at the same time.
  [[nodiscard]] bool overlapped() const {
    const std::lock_guard hold(mutex_);
    return overlapped_;
  }
  void buffer_is_free(std::uint32_t buffer) {
    const std::lock_guard hold(mutex_);
    buffers_.erase(buffer);
  }

  // The device.
  result<penstock::device::identity> open() override {
    if (auto no = note("open")) return tl::unexpected(*no);
    return inner_->open();
  }
  result<bool> attach(std::uint32_t p, std::span<std::byte> m) override {
    if (auto no = note("attach")) return tl::unexpected(*no);
    return inner_->attach(p, m);
  }
  result<void> allocate(const penstock::device::transfer_plan& plan, std::uint32_t n) override {
    if (auto no = note("allocate")) return tl::unexpected(*no);
    return inner_->allocate(plan, n);
  }
  result<void> submit(std::span<const penstock::device::upload_job> jobs) override {
    if (auto no = note("submit")) return tl::unexpected(*no);
    {
      const std::lock_guard hold(mutex_);
      for (const penstock::device::upload_job& job : jobs) {
        const bool buffer_was_free = buffers_.insert(job.buffer).second;
        const bool slot_was_free = slots_.insert({job.partition, job.slot_offset}).second;
        overlapped_ |= !buffer_was_free || !slot_was_free;
        slot_of_[job.upload] = {job.partition, job.slot_offset};
      }
    }
    return inner_->submit(jobs);
  }
  result<std::vector<penstock::device::progress>> poll() override {
    if (auto no = note("poll")) return tl::unexpected(*no);
    if (polls_until_standing_ > 0 && --polls_until_standing_ == 0) {
      standing_ = true;
      standing_.notify_all();
      goes_on_.wait(false);
      polls_until_well_ = 3;
    } else if (polls_until_well_ > 0 && --polls_until_well_ == 0) {
      hangs_ = false;
    }
    if (hangs_) return std::vector<penstock::device::progress>{};
    auto news = inner_->poll();
    const std::lock_guard hold(mutex_);
    for (const penstock::device::progress& p : *news) {
      if (p.reached == penstock::device::stage::copied) slots_.erase(slot_of_.at(p.upload));
    }
    return news;
  }
  [[nodiscard]] bool waits_for_consumer() const override { return waits_; }
  void on_progress(std::function<void()> waker) override { inner_->on_progress(std::move(waker)); }
  void close() noexcept override {
    static_cast<void>(note("close"));
    inner_->close();
  }
  [[nodiscard]] std::byte* address(std::uint32_t b) const override { return inner_->address(b); }
  result<void> read_back(std::uint32_t b, std::uint64_t o, std::span<std::byte> to) override {
    return inner_->read_back(b, o, to);
  }
  result<void> wait(std::uint32_t b, stream_handle s) override { return inner_->wait(b, s); }
  result<void> release_after(std::uint32_t b, std::span<const stream_handle> s) override {
    if (refused_releases_ > 0) {
      --refused_releases_;
      return refuse(errc::usage, "releasing a batch on a stream that is being captured");
    }
    return inner_->release_after(b, s);
  }
  result<void> finish(stream_handle s) override { return inner_->finish(s); }
  result<stream_handle> enter_programs() override { return inner_->enter_programs(); }
  result<void> finish_program() override { return inner_->finish_program(); }
  result<std::byte*> take_memory(std::uint64_t bytes) override { return inner_->take_memory(bytes); }
  void give_back_memory(std::byte* memory) noexcept override { inner_->give_back_memory(memory); }
  [[nodiscard]] bool on_host() const noexcept override { return inner_->on_host(); }

 private:
  std::optional<failure> note(const std::string& call) {
    const std::lock_guard hold(mutex_);
    threads_.insert(std::this_thread::get_id());
    const int number = ++calls_[call];
    if (poisoned_ && call != "close") ++late_calls_;
    if (poisoned_) return fault_->why;
    if (!fault_ || fault_->call != call || fault_->number != number) return std::nullopt;
    poisoned_ = fault_->sticky;
    return fault_->why;
  }

  std::unique_ptr<penstock::device::device> inner_;
  std::optional<fault> fault_;
  std::atomic<bool> hangs_{false};
  std::atomic<int> polls_until_standing_{0};
  std::atomic<int> polls_until_well_{0};
  std::atomic<bool> standing_{false};
  std::atomic<bool> goes_on_{false};
  std::atomic<bool> waits_{false};
  std::atomic<int> refused_releases_{0};

  mutable std::mutex mutex_;
  std::set<std::thread::id> threads_;
  std::map<std::string, int> calls_;
  std::set<std::uint32_t> buffers_;                          // being written, or held by the consumer
  std::set<std::pair<std::uint32_t, std::uint64_t>> slots_;  // being read
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> slot_of_;
  bool overlapped_ = false;
  bool poisoned_ = false;
  int late_calls_ = 0;
};

}  // namespace penstock::device_test
