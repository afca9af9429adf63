// Many small messages as one: senders put items on the pile, and only the one that finds it empty tells the
// actor, which takes all there are. With small batches a message for each would cost more than the batch.
// Thread-safe. Its bound is its items' own: leases that are out, batches that are on the device.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace penstock::protocol {

template <class T>
class pile {
 public:
  /// True: tell the actor. Items that are added before it takes them need no further message.
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
