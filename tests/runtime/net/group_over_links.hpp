// A whole group in one process, for tests: the books of rank 0 and of every rank, over real links and with
// the real clock.
#pragma once

#include "runtime/group/group_book.hpp"
#include "runtime/group/member_book.hpp"
#include "tests/runtime/net/link_world.hpp"

#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::testing {

struct group_over_links_settings {
  std::uint32_t ranks = 4;
  std::uint64_t batches = 20;  ///< in the stream
  bool waits = true;
  nanoseconds lost_after = std::chrono::seconds(10);
};

inline steady_time real_now() {
  return std::chrono::steady_clock::now();
}

/// Calls `what` now and at every beat.
class beating {
 public:
  beating(boost::asio::io_context& io, nanoseconds beat, std::function<void()> what)
      : timer_(io), beat_(beat), what_(std::move(what)) {
    again();
  }

 private:
  void again() {
    timer_.expires_after(beat_);
    timer_.async_wait([this](const boost::system::error_code& status) {
      if (status) return;
      what_();
      again();
    });
  }
  boost::asio::steady_timer timer_;
  nanoseconds beat_;
  std::function<void()> what_;
};

class rank_over_links {
 public:
  rank_over_links(boost::asio::io_context& io, group::link_settings link, const group_over_links_settings& of,
                  const group::rank_card& card, std::uint64_t steps)
      : of_(of), book_(settings_of(of, card), steps, real_now()), steps_(steps) {
    link_ =
        group::member_link::make(
            io, std::move(link),
            {.order =
                 [this](const group::group_order& o) {
                   book_.heard(o, real_now());
                   advance();
                 },
             .disconnected = [this](const group::link_trouble& trouble) { reasons.push_back(trouble.why); },
             .coordinator_ended =
                 [this] {
                   book_.coordinator_gone("its process has ended");
                   advance();
                 }})
            .value();
    book_.described({"fingerprint", 0, 0});
    advance();
    beat_.emplace(io, settings_of(of, card).beat(), [this] { advance(); });
  }

  /// The next batch, if it can be handed out. Call repeatedly while the group lives.
  bool deliver() {
    if (end || steps_ >= of_.batches || !book_.may_hand_out(real_now())) return false;
    book_.delivered(++steps_);
    if (steps_ == of_.batches) book_.stream_ended();
    advance();
    return true;
  }
  [[nodiscard]] bool may_hand_out() const { return book_.may_hand_out(real_now()); }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint32_t incarnation() const { return book_.incarnation(); }

  std::optional<group::end_rank> end{};
  std::vector<std::string> reasons{};

 private:
  static group::member_settings settings_of(const group_over_links_settings& of,
                                            const group::rank_card& card) {
    group::member_settings s;
    s.card = card;
    s.waits_for_lost = of.waits;
    s.lost_after = of.lost_after;
    return s;
  }

  void advance() {
    for (group::member_command& one : book_.advance(real_now())) {
      if (auto* report = std::get_if<group::send_report>(&one)) {
        value_or_throw(link_->send(report->report));
      } else if (auto* ended = std::get_if<group::end_rank>(&one)) {
        end = std::move(*ended);
      }
    }
  }

  group_over_links_settings of_;
  group::member_book book_;
  std::uint64_t steps_;
  std::unique_ptr<group::member_link> link_;
  std::optional<beating> beat_;
};

class coordinator_over_links {
 public:
  coordinator_over_links(boost::asio::io_context& io, const group::link_settings& link,
                         const group_over_links_settings& of, std::uint64_t process)
      : book_(settings_of(of, process), real_now()) {
    listener = group::coordinator_listener::make(
                   io, link,
                   {.report =
                        [this](group::link_id id, const group::member_report& report) {
                          link_of_[report.card.process] = id;
                          book_.heard(report, real_now());
                          advance();
                        },
                    .closed = [](group::link_id, const std::string&) {},
                    .process_ended = [this](group::link_id id) { gone(id); },
                    .listening = [this](const std::string& at) { where = at; },
                    .unknown_peer = [this](const group::unknown_peer_news& one) { news.push_back(one); }})
                   .value();
    beat_.emplace(io, settings_of(of, process).beat(), [this] { advance(); });
  }

  std::unique_ptr<group::coordinator_listener> listener{};
  std::string where{};
  std::vector<group::unknown_peer_news> news{};
  std::vector<group::group_event> events{};
  [[nodiscard]] bool may_leave() const { return book_.may_leave(); }

 private:
  static group::group_settings settings_of(const group_over_links_settings& of, std::uint64_t process) {
    group::group_settings s;
    s.world_size = of.ranks;
    s.process = process;
    s.waits_for_lost = of.waits;
    s.lost_after = of.lost_after;
    return s;
  }

  void gone(group::link_id id) {
    for (const auto& [process, link] : link_of_) {
      if (link == id) book_.gone(process, "its process has ended", real_now());
    }
    advance();
  }

  void advance() {
    for (const group::group_command& one : book_.advance(real_now())) {
      if (const auto* order = std::get_if<group::send_order>(&one))
        listener->send(link_of_[order->process], order->order);
      if (const auto* event = std::get_if<group::group_event>(&one)) events.push_back(*event);
    }
  }

  group::group_book book_;
  std::map<std::uint64_t, group::link_id> link_of_;
  std::optional<beating> beat_;
};

/// Rank 0's coordinator, and all ranks.
class group_over_links {
 public:
  group_over_links(link_kind kind, const group_over_links_settings& of)
      : of_(of), link_(link_settings_for(kind, of.ranks)) {
    link_.lost_after = of.lost_after;
    start_coordinator();
    run_until(io, [this] { return !coordinator->where.empty(); });
    if (kind != link_kind::local) {
      const std::string& where = coordinator->where;
      link_.address.port = static_cast<std::uint16_t>(std::stoi(where.substr(where.rfind(':') + 1)));
    }
  }

  void start_coordinator() {
    coordinator = std::make_unique<coordinator_over_links>(io, link_, of_, ++processes_);
    coordinators_process_ = processes_;
  }
  /// Starts or restarts the rank, with its state as known to its launcher.
  void start_rank(std::uint32_t rank, std::uint64_t steps = 0) {
    group::rank_card card;
    card.rank = rank;
    card.world_size = of_.ranks;
    card.process = rank == 0 ? coordinators_process_ : ++processes_;
    card.starts = starts_[rank]++;
    card.host = "host";
    card.pid = static_cast<std::int32_t>(card.process);
    card.settings = {{"sampler.seed", "1"}};
    ranks[rank] = std::make_unique<rank_over_links>(io, link_, of_, card, steps);
  }
  void start_all() {
    for (std::uint32_t rank = 0; rank < of_.ranks; ++rank) start_rank(rank);
  }

  [[nodiscard]] bool all_may_hand_out() const {
    return std::ranges::all_of(ranks, [](const auto& one) { return one.second->may_hand_out(); });
  }
  [[nodiscard]] bool all_ended() const {
    return std::ranges::all_of(ranks, [](const auto& one) { return one.second->end.has_value(); });
  }
  void deliver_to(std::uint64_t steps) {
    run_until(io, [&] {
      bool all = true;
      for (auto& [number, rank] : ranks) {
        if (rank->steps() < steps && rank->deliver()) boost::asio::post(io, [] {});
        all = all && (rank->steps() >= steps || rank->end);
      }
      return all;
    });
  }
  [[nodiscard]] const group::link_settings& link() const { return link_; }

  boost::asio::io_context io{};
  std::unique_ptr<coordinator_over_links> coordinator{};
  std::map<std::uint32_t, std::unique_ptr<rank_over_links>> ranks{};

 private:
  group_over_links_settings of_;
  group::link_settings link_;
  std::uint64_t processes_ = 0;
  std::uint64_t coordinators_process_ = 0;
  std::map<std::uint32_t, std::uint32_t> starts_;
};

}  // namespace penstock::testing
