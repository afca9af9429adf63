// Passes bursts of small items to an actor with one message: senders add items, and only the sender that
// finds the queue empty notifies the actor, which takes all items at once. With small batches, a message per
// item would cost more than the batch. Thread-safe. Holds at most one item per outstanding lease, or per
// batch on the device.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace penstock::protocol {

template <class T>
class burst_queue {
 public:
  /// Adds an item. True: notify the actor, which then takes all items without a further message.
  [[nodiscard]] bool add(T item) {
    const std::lock_guard hold(mutex_);
    items_.push_back(std::move(item));
    return items_.size() == 1;
  }

  [[nodiscard]] std::vector<T> take() {
    const std::lock_guard hold(mutex_);
    return std::exchange(items_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<T> items_;
};

}  // namespace penstock::protocol
