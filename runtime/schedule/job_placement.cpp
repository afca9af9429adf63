// Jobs with a preferred worker, which has what they need (its iterator, its cache).
#include "runtime/schedule/job_book.hpp"

#include <iterator>

namespace penstock::schedule {

/// Gives each job its own lease, because a job with a preferred worker is seldom small.
void job_book::lease_placed(steady_time now) {
  for (auto it = placed_.begin(); it != placed_.end();) {
    auto& [index, group] = *it;
    worker* const w = workers_.find(index);
    const bool there = w != nullptr && w->kind == worker_kind::loader && works(*w);
    if (there) {
      group.absent_since.reset();
      const bool takes = !w->more.reserved;
      while (takes && !w->free.empty() && !group.jobs.empty() && wants_more(*w)) {
        job_entry& e = *group.jobs.begin()->second;
        if (!may_begin(e)) break;
        --waiting_;
        group.jobs.erase(group.jobs.begin());
        scratch_.bundle.assign(1, &e);
        give(index);
      }
    } else if (!group.absent_since) {
      group.absent_since = now;
    }
    const nanoseconds patience = w == nullptr ? settings_.first_place_patience : settings_.place_patience;
    if (!there && now - *group.absent_since >= patience) {
      for (const auto& [job, e] : group.jobs) {
        e->request.place.reset();
        --waiting_;
        enqueue(*e);
      }
      group.jobs.clear();
    } else if (!there) {
      look_again(*group.absent_since + patience);
    }
    it = group.jobs.empty() ? placed_.erase(it) : std::next(it);
  }
}

}  // namespace penstock::schedule
