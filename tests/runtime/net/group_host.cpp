// One rank of a group, and rank 0's coordinator with it, for group_hosts_test.py: it delivers a batch every
// `pace` and prints each event on a line: seconds of the monotonic clock, a word, details.
//
//   group_host RANK RANKS ADDRESS PORT BATCHES PACE_MS fail|wait      (the secret: PENSTOCK_GROUP_SECRET)
#include "tests/runtime/net/group_over_links.hpp"

#include <cstdio>
#include <cstdlib>
#include <span>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;

namespace {

void say(const std::string& what) {
  const double now = std::chrono::duration<double>(real_now().time_since_epoch()).count();
  fmt::print("{:.3f} {}\n", now, what);
  std::fflush(stdout);
}

class host {
 public:
  explicit host(std::span<char*> words)
      : number_(static_cast<std::uint32_t>(std::atoi(words[0]))),
        of_{.ranks = static_cast<std::uint32_t>(std::atoi(words[1])),
            .batches = static_cast<std::uint64_t>(std::atoll(words[4])),
            .waits = std::string(words[6]) == "wait"},
        link_{
            .address = {group_address::kind::tcp, words[2], static_cast<std::uint16_t>(std::atoi(words[3]))},
            .group = "hosts/test",
            .secret = group_secret{std::getenv("PENSTOCK_GROUP_SECRET")},
            .world_size = of_.ranks} {
    rank_card card;
    card.rank = number_;
    card.world_size = of_.ranks;
    card.process = 1 + number_;
    card.host = fmt::format("host{}", number_);
    card.pid = static_cast<std::int32_t>(::getpid());
    if (number_ == 0) coordinator_ = std::make_unique<coordinator_over_links>(io_, link_, of_, card.process);
    rank_ = std::make_unique<rank_over_links>(io_, link_, of_, card, 0);
    pace_.emplace(io_, std::chrono::milliseconds(std::atoi(words[5])), [this] { step(); });
  }

  void run() {
    while (!over_) io_.run_one();
  }

 private:
  void step() {
    if (rank_->deliver()) say(fmt::format("step {}", rank_->steps()));
    if (rank_->may_hand_out() != std::exchange(may_, rank_->may_hand_out())) say(may_ ? "go" : "wait");
    for (; told_ < rank_->reasons.size(); ++told_) say("disconnected " + rank_->reasons[told_]);
    for (; coordinator_ && events_ < coordinator_->events.size(); ++events_) {
      const group_event& event = coordinator_->events[events_];
      if (event.what == group_event::kind::lost) say(fmt::format("lost {} {}", event.rank, event.text));
    }
    if (rank_->end && !std::exchange(ended_, true)) {
      say(fmt::format("end {} incarnation {} by {} because {}", static_cast<int>(rank_->end->how),
                      rank_->incarnation(),
                      rank_->end->cause ? static_cast<int>(rank_->end->cause->rank) : -1,
                      rank_->end->cause ? rank_->end->cause->cause : ""));
    }
    over_ = ended_ && (!coordinator_ || coordinator_->may_leave());
  }

  std::uint32_t number_;
  group_over_links_settings of_;
  link_settings link_;
  boost::asio::io_context io_;
  std::unique_ptr<coordinator_over_links> coordinator_;
  std::unique_ptr<rank_over_links> rank_;
  std::optional<beating> pace_;
  std::size_t told_ = 0;
  std::size_t events_ = 0;
  bool may_ = false;
  bool ended_ = false;
  bool over_ = false;
};

}  // namespace

int main(int count, char** words) {
  if (count != 8 || std::getenv("PENSTOCK_GROUP_SECRET") == nullptr) return 2;
  host(std::span(words + 1, 7)).run();
}
