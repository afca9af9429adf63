#include "runtime/storage/transfers.hpp"

#include "runtime/base/fnv1a.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/running_clock.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/units.hpp"
#include "runtime/storage/attempt.hpp"
#include "runtime/storage/retry.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace penstock {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
using kind = attempt::outcome::kind;

constexpr long connections_kept = 64;
constexpr unsigned redirects_max = 5;
constexpr unsigned hedges_max = 4;
/// After this many failures of an exchange, each attempt sends two requests at once.
constexpr unsigned failures_before_two = 2;
/// How many times to try to connect. Few, because such failures are often mistakes in the config: a name that
/// does not resolve, or a port without a listener.
constexpr unsigned connections_max = 5;
constexpr nanoseconds look_every = 1s;

}  // namespace

/// Only the thread of the transfers uses an exchange, except for `state`.
class transfers::exchange {
 public:
  explicit exchange(transfer_request what) : request(std::move(what)) {
    key = fnv1a(request.to.path) ^ (request.range ? request.range->at * 0x9e3779b97f4a7c15 : 0);
  }

  transfer_request request;
  steady_time deadline = never;  ///< on the loop's running_clock; `never`: not started yet
  std::uint64_t key = 0;
  std::list<attempt> running;  ///< the first request, and second requests sent because it is slow
  unsigned attempts = 0;
  unsigned redirects = 0;
  unsigned hedges = 0;  ///< second requests of the current attempt
  unsigned failures = 0;
  bool is_reachable = true;
  bool renewed = false;
  steady_time next_attempt{};          ///< when to send the next attempt, if no request is running
  steady_time failed_hedge_due = never;  ///< when to replace a second request that failed
  failure last{errc::io, "does not answer", 0};

  std::optional<result<transfer_answer>> state;  ///< guarded by the loop's mutex
};

class transfers::loop {
 public:
  loop(const curl_library& curl, nanoseconds patience, request_signer signer)
      : curl_(curl), patience_(patience), signer_(std::move(signer)), multi_(curl.curl_multi_init()) {
    curl_.curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, connections_kept);
    // OpenSSL itself and the curl program read this variable; libcurl does not.
    if (const char* const given = std::getenv("SSL_CERT_FILE"); given != nullptr) authorities_ = given;
    const all_signals_blocked in_the_new_thread;
    thread_ = std::thread([this] { run(); });
  }

  ~loop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    curl_.curl_multi_wakeup(multi_);
    thread_.join();
    for (const ticket& one : active_) drop_attempts(*one);
    curl_.curl_multi_cleanup(multi_);
  }
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;

  ticket start(transfer_request request) {
    auto made = std::make_shared<exchange>(std::move(request));
    {
      const std::lock_guard lock(mutex_);
      new_.push_back(made);
    }
    curl_.curl_multi_wakeup(multi_);
    return made;
  }

  result<transfer_answer> wait(const ticket& of) {
    std::unique_lock lock(mutex_);
    // The thread ends every exchange at its deadline. Wait a little longer, for an overloaded machine.
    patient_deadline until(patience_ + 10s, look_every);
    until.restart(clock::now());
    while (!ended_.wait_for(lock, look_every, [&] { return of->state.has_value(); })) {
      if (until.is_over(clock::now())) return refuse(errc::io, "cannot be fetched: the transfer thread is not running");
    }
    return std::move(*of->state);
  }

  transfer_counts counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void run() {
    while (take_new()) {
      const steady_time now = clock::now();
      ran_.look(now);
      for (const ticket& one : active_) advance(*one, now);
      std::erase_if(active_, [&](const ticket& one) { return has_ended(*one); });
      int running = 0;
      curl_.curl_multi_perform(multi_, &running);
      if (collect()) continue;
      curl_.curl_multi_poll(multi_, nullptr, 0, timeout_ms(clock::now()), nullptr);
    }
  }

  bool take_new() {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    active_.insert(active_.end(), new_.begin(), new_.end());
    new_.clear();
    return true;
  }

  bool has_ended(const exchange& one) {
    const std::lock_guard lock(mutex_);
    return one.state.has_value();
  }

  void advance(exchange& one, steady_time now) {
    if (has_ended(one)) return;
    if (one.deadline == never) one.deadline = ran_.ran() + patience_;
    if (ran_.ran() >= one.deadline) {
      return end(one, refuse(one.last.code, "{} ({} attempts in {})", one.last.message, one.attempts,
                             duration_for_people(patience_)));
    }
    if (one.running.empty()) {
      // Retries have priority, because a batch may be waiting for them.
      const bool has_place = one.attempts > 0 || in_flight_ < pace_.at_once();
      if (now < one.next_attempt || !has_place) return;
      launch(one, now);
      if (one.failures >= failures_before_two && one.is_reachable) hedge(one, now);
    } else if (now > hedge_due(one) && hedge(one, now) && one.hedges > 1) {
      hedge(one, now);
    }
  }

  /// Sends another request for the same bytes, unless too many were sent.
  bool hedge(exchange& one, steady_time now) {
    if (one.hedges >= hedges_max || !pace_.take_second()) return false;
    ++one.hedges;
    ++in_this_loop_.hedges;
    launch(one, now);
    return true;
  }

  /// When to send a second request. From the second time on, the caller sends two at once, because a batch
  /// may be waiting for this exchange.
  [[nodiscard]] steady_time hedge_due(const exchange& one) const {
    if (one.running.empty() || one.hedges >= hedges_max) return never;
    const attempt& newest = one.running.back();
    return std::min(one.failed_hedge_due, newest.began() + pace_.patience(newest.answered().has_value()));
  }

  void launch(exchange& one, steady_time now) {
    std::vector<std::string> headers;
    if (one.request.may_sign && signer_.headers) headers = signer_.headers(one.request);
    attempt& made = one.running.emplace_back(curl_, one.request, headers, now);
    made.renewals = renewals_;
    if (!authorities_.empty()) curl_.curl_easy_setopt(made.handle(), CURLOPT_CAINFO, authorities_.c_str());
    one.failed_hedge_due = never;
    ++one.attempts;
    ++in_flight_;
    pace_.started();
    ++in_this_loop_.attempts;
    curl_.curl_multi_add_handle(multi_, made.handle());
  }

  /// Handles the requests that have finished. Returns false if there were none.
  bool collect() {
    bool any = false;
    int left = 0;
    while (CURLMsg* const message = curl_.curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      any = true;
      CURL* const handle = message->easy_handle;
      const CURLcode code = message->data.result;
      for (const ticket& one : active_) {
        const auto found = std::ranges::find(one->running, handle, &attempt::handle);
        if (found == one->running.end()) continue;
        finished(*one, found, code);
        break;
      }
    }
    return any;
  }

  void finished(exchange& one, std::list<attempt>::iterator which, CURLcode code) {
    const attempt::outcome came = which->outcome_of(code);
    if (came.what == kind::done) {
      const steady_time now = clock::now();
      const steady_time answered = which->answered().value_or(now);
      transfer_answer answer = which->take_answer();
      pace_.answered(answered - which->began(), now - which->began(), answer.body.size());
      return end(one, std::move(answer));
    }
    const bool has_old_credentials = which->renewals < renewals_;
    drop(one, which);
    switch (came.what) {
      case kind::redirected: return redirect(one, came.location);
      case kind::denied:
        if (one.request.may_sign && (has_old_credentials || renew(one))) {
          one.next_attempt = clock::now();
          return;
        }
        return end(one, tl::unexpected(came.why));
      case kind::transient: return again(one, came);
      case kind::refused:
      case kind::done: return end(one, tl::unexpected(came.why));
    }
  }

  bool renew(exchange& one) {
    if (std::exchange(one.renewed, true) || !signer_.renewed || !signer_.renewed()) return false;
    ++renewals_;
    return true;
  }

  void again(exchange& one, const attempt::outcome& came) {
    one.last = came.why;
    ++one.failures;
    one.is_reachable = !came.no_connection;
    const auto pause = pause_before(one.failures + 1, one.key);
    if (!one.running.empty()) {  // another request for the same bytes is still running
      if (pause) one.failed_hedge_due = clock::now() + *pause;
      return;
    }
    one.hedges = 0;
    if (!pause || (came.no_connection && one.attempts >= connections_max))
      return end(one, refuse(one.last.code, "{} ({} attempts)", one.last.message, one.attempts));
    ++in_this_loop_.retries;
    one.next_attempt = clock::now() + *pause;
  }

  /// Follows a redirect, without sending credentials to another server.
  void redirect(exchange& one, const std::string& location) {
    url next = one.request.to;
    if (location.starts_with('/')) {
      next.path = location;
    } else {
      auto parsed = parse_url(location);
      if (!parsed || parsed->scheme == "s3")
        return end(one, refuse(errc::io, "is redirected to an address that penstock does not follow"));
      next = std::move(*parsed);
    }
    if (++one.redirects > redirects_max) return end(one, refuse(errc::io, "is redirected more than {} times", redirects_max));
    if (one.request.to.scheme == "https" && next.scheme == "http")
      return end(one, refuse(errc::io, "is redirected from https to http, which penstock does not follow"));
    if (!is_same_server(one.request.to, next)) one.request.may_sign = false;
    drop_attempts(one);
    one.hedges = 0;
    one.request.to = std::move(next);
    one.next_attempt = clock::now();
  }

  void end(exchange& one, result<transfer_answer> with) {
    drop_attempts(one);
    const std::lock_guard lock(mutex_);
    one.state.emplace(std::move(with));
    counts_.attempts += in_this_loop_.attempts;
    counts_.retries += in_this_loop_.retries;
    counts_.hedges += in_this_loop_.hedges;
    in_this_loop_ = {};
    ended_.notify_all();
  }

  void drop(exchange& one, std::list<attempt>::iterator which) {
    curl_.curl_multi_remove_handle(multi_, which->handle());
    one.running.erase(which);
    --in_flight_;
  }
  void drop_attempts(exchange& one) {
    while (!one.running.empty()) drop(one, one.running.begin());
  }

  /// Time until the next retry, second request or deadline.
  [[nodiscard]] int timeout_ms(steady_time now) const {
    steady_time due = now + look_every;
    for (const ticket& one : active_) {
      due = std::min(due, now + (one->deadline - ran_.ran()));
      if (one->running.empty() && (one->attempts > 0 || in_flight_ < pace_.at_once())) due = std::min(due, one->next_attempt);
      // A second request may be due but not allowed yet. It waits until other requests have
      // ended, so look again soon.
      due = std::min(due, std::max(now + 5ms, hedge_due(*one)));
    }
    return static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(due - now).count()));
  }

  const curl_library& curl_;
  nanoseconds patience_;
  request_signer signer_;
  std::string authorities_;  // a file of certificates; empty: libcurl's default
  // How many times the credentials have changed; requests in flight may still use earlier ones.
  std::uint64_t renewals_ = 0;
  CURLM* multi_;
  std::vector<ticket> active_;
  std::size_t in_flight_ = 0;
  // Time during which this thread did not run does not count as slowness of the server.
  running_clock ran_{clock::now(), look_every};
  request_pace pace_;
  transfer_counts in_this_loop_;

  std::mutex mutex_;
  std::condition_variable ended_;
  std::deque<ticket> new_;
  transfer_counts counts_;
  bool stopping_ = false;
  std::thread thread_;
};

transfers::transfers(std::unique_ptr<loop> running) : loop_(std::move(running)) {}
transfers::~transfers() = default;

result<std::unique_ptr<transfers>> transfers::open(nanoseconds patience, request_signer signer) {
  const auto curl = curl_library::get();
  if (!curl) return tl::unexpected(curl.error());
  try {
    return std::unique_ptr<transfers>(new transfers(std::make_unique<loop>(**curl, patience, std::move(signer))));
  } catch (const std::system_error& e) {
    return refuse_os(errc::system, e.code().value(), "starting the thread for transfers");
  }
}

transfers::ticket transfers::start(transfer_request request) {
  return loop_->start(std::move(request));
}
result<transfer_answer> transfers::wait(const ticket& of) {
  return loop_->wait(of);
}
transfer_counts transfers::counts() const {
  return loop_->counts();
}

}  // namespace penstock
