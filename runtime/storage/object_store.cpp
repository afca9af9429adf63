#include "runtime/storage/object_store.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/storage/curl_library.hpp"
#include "runtime/storage/signature.hpp"

#include <algorithm>
#include <cerrno>

namespace penstock {
namespace {

constexpr std::uint64_t page_bytes_max = 16 * MiB;

failure of_object(const std::string& path, failure why) {
  why.message = fmt::format("'{}' {}", printable(path), why.message);
  return why;
}

/// The URL of an object in S3: below the configured endpoint, else at the bucket's own host.
result<url> place_in_s3(const s3_settings& s3, const std::string& bucket, const std::string& key_path) {
  const std::string key = percent_encoded(key_path, true);
  if (!s3.endpoint.empty()) {
    auto server = parse_url(s3.endpoint);
    if (!server || server->scheme == "s3")
      return refuse(errc::config, "AWS_ENDPOINT_URL is '{}': it must be an http or https URL", printable(s3.endpoint));
    const std::string base = server->path == "/" ? "" : server->path;
    server->path = fmt::format("{}/{}{}", base, percent_encoded(bucket, false), key);
    return server;
  }
  // A certificate for *.s3.REGION.amazonaws.com does not cover names with further dots.
  if (bucket.find('.') != std::string::npos)
    return url{"https", fmt::format("s3.{}.amazonaws.com", s3.region), fmt::format("/{}{}", percent_encoded(bucket, false), key)};
  return url{"https", fmt::format("{}.s3.{}.amazonaws.com", bucket, s3.region), key};
}

}  // namespace

result<std::shared_ptr<object_store>> object_store::open(const store_options& options) {
  std::shared_ptr<object_store> made(new object_store);
  auto s3 = read_s3_settings();
  if (!s3) return tl::unexpected(std::move(s3.error()));
  made->s3_ = std::move(*s3);
  made->unread_for_ = options.unread_for;
  if (!options.cache.empty()) {
    auto cache = block_cache::open(options.cache, options.cache_bytes);
    if (!cache) return tl::unexpected(std::move(cache.error()));
    made->cache_ = std::move(*cache);
  }
  object_store* const store = made.get();
  auto opened =
      transfers::open(options.patience, {[store](const transfer_request& request) { return store->headers_for(request); },
                                         [store] { return store->renew_credentials(); }});
  if (!opened) return tl::unexpected(std::move(opened.error()));
  made->transfers_ = std::move(*opened);
  return made;
}

result<transfer_request> object_store::request_for(const std::string& path) const {
  auto parts = parse_url(path);
  if (!parts) return tl::unexpected(std::move(parts.error()));
  transfer_request request;
  request.to = *parts;
  request.to.path = path_as_sent(parts->path);
  if (parts->scheme != "s3") return request;
  const std::lock_guard lock(mutex_);
  auto place = place_in_s3(s3_, parts->authority, parts->path);
  if (!place) return tl::unexpected(std::move(place.error()));
  request.to = std::move(*place);
  request.may_sign = s3_.who.has_value();
  return request;
}

std::vector<std::string> object_store::headers_for(const transfer_request& request) const {
  const std::lock_guard lock(mutex_);
  if (!s3_.who) return {};
  std::vector<std::string> lines;
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  std::vector<http_header> more;
  if (request.is_whole) more.emplace_back("x-amz-checksum-mode", "ENABLED");
  for (const auto& [name, value] :
       s3_headers(request.to.authority, request.to.path, request.query, *s3_.who, s3_.region, now, std::move(more)))
    lines.push_back(fmt::format("{}: {}", name, value));
  return lines;
}

bool object_store::renew_credentials() {
  auto now = read_s3_settings();
  if (!now || !now->who) return false;
  const std::lock_guard lock(mutex_);
  if (s3_.who == now->who) return false;
  s3_.who = std::move(now->who);
  return true;
}

/// Called when objects are examined or listed: only sessions do this, and before they read any object.
void object_store::begin_session() {
  if (cache_ && !session_begun_.exchange(true)) cache_->begin_session();
}

void object_store::will_use(const std::string& path, const object_facts& facts) {
  if (cache_ && !facts.tag.empty()) cache_->will_use(name_in_cache(path, facts), facts.bytes);
}

void object_store::add_unread(const remote_object* object, std::weak_ptr<remote_object> itself) {
  const std::lock_guard lock(mutex_);
  unread_.emplace(object, std::move(itself));
}

void object_store::remove_unread(const remote_object* object) {
  const std::lock_guard lock(mutex_);
  unread_.erase(object);
}

void object_store::forget_unread(steady_time now) {
  std::vector<std::shared_ptr<remote_object>> some;
  {
    const std::lock_guard lock(mutex_);
    if (now - looked_ < unread_for_ / 4) return;
    looked_ = now;
    for (const auto& [object, itself] : unread_)
      if (auto alive = itself.lock()) some.push_back(std::move(alive));
  }
  for (const auto& one : some) one->forget_unread(now - unread_for_);
}

result<std::vector<object_facts>> object_store::examine(std::span<const std::string> paths, missing_objects missing) {
  begin_session();
  // Requests one byte instead of sending HEAD: a refusal of a GET has a body with the reason, and the answer
  // shows whether the server supports ranges.
  std::vector<object_facts> all;
  constexpr std::size_t at_once = 1024;
  for (std::size_t begin = 0; begin < paths.size(); begin += at_once) {
    const auto some = paths.subspan(begin, std::min(at_once, paths.size() - begin));
    std::vector<transfers::ticket> tickets;
    for (const std::string& path : some) {
      auto request = request_for(path);
      if (!request) return tl::unexpected(of_object(path, std::move(request.error())));
      request->range = byte_range{0, 1};
      tickets.push_back(transfers_->start(std::move(*request)));
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      auto answer = transfers_->wait(tickets[i]);
      if (answer) {
        all.push_back({answer->object_bytes, std::move(answer->tag)});
        will_use(some[i], all.back());
      } else if (answer.error().os_code == ENOENT && missing == missing_objects::allowed) {
        all.push_back({0, {}, false});
      } else {
        return tl::unexpected(of_object(some[i], std::move(answer.error())));
      }
    }
  }
  return all;
}

result<std::vector<listed_object>> object_store::list(const std::string& beginning, listing_depth depth,
                                                      std::uint64_t most,
                                                      const std::function<bool(std::string_view key)>& wanted) {
  begin_session();
  auto parts = parse_url(beginning);
  if (!parts) return tl::unexpected(std::move(parts.error()));
  const std::string prefix = parts->path.substr(1);
  auto request = request_for(fmt::format("s3://{}/", parts->authority));
  if (!request) return tl::unexpected(std::move(request.error()));
  request->bytes_max = page_bytes_max;
  std::vector<listed_object> all;
  std::string token;
  do {
    const std::string go_on = token.empty() ? "" : fmt::format("continuation-token={}&", percent_encoded(token, false));
    request->query = fmt::format("{}{}list-type=2&prefix={}", go_on, depth == listing_depth::folder ? "delimiter=%2F&" : "",
                                 percent_encoded(prefix, false));
    auto answer = transfers_->wait(transfers_->start(*request));
    if (!answer) return tl::unexpected(of_object(beginning, std::move(answer.error())));
    auto page = parse_listing_page({reinterpret_cast<const char*>(answer->body.data()), answer->body.size()});
    if (!page) return tl::unexpected(of_object(beginning, failure{page.error().code, "cannot be listed: " + page.error().message, 0}));
    for (listed_object& one : page->objects) {
      if (!wanted(one.key)) continue;
      will_use(fmt::format("s3://{}/{}", parts->authority, one.key), {one.bytes, one.tag});
      all.push_back(std::move(one));
    }
    if (all.size() > most)
      return refuse(errc::dataset, "more than {} objects begin with '{}'", most, printable(beginning));
    token = std::move(page->next);
  } while (!token.empty());
  return all;
}

std::optional<stated_sum> object_store::wrong_sum(const transfer_answer& whole) {
  for (const stated_sum& one : whole.sums)
    if (has_sum(whole.body, one) == false) return one;
  // ETags of some stores look like an MD5 but are not one. An ETag counts as a checksum only after an ETag
  // of this store has matched.
  constexpr int tried_max = 8;
  const auto tag = whole.tag_may_be_sum && (tags_are_sums_ || tags_tried_ < tried_max) ? sum_in_tag(whole.tag) : std::nullopt;
  if (!tag) return std::nullopt;
  ++tags_tried_;
  const auto fits = has_sum(whole.body, *tag);
  if (fits == true) tags_are_sums_ = true;
  return fits == false && tags_are_sums_ ? tag : std::nullopt;
}

std::string name_in_cache(const std::string& path, const object_facts& facts) {
  return fmt::format("{} {}", path, facts.tag);
}

std::shared_ptr<remote_object> object_store::object(const std::string& path, object_facts facts) {
  return std::make_shared<remote_object>(shared_from_this(), path, std::move(facts));
}

result<void> check_remote_path(const std::string& path) {
  auto parts = parse_url(path);
  if (!parts) return tl::unexpected(std::move(parts.error()));
  if (parts->scheme == "s3") {
    auto s3 = read_s3_settings();
    if (!s3) return tl::unexpected(std::move(s3.error()));
    if (auto place = place_in_s3(*s3, parts->authority, parts->path); !place) return tl::unexpected(std::move(place.error()));
  }
  if (auto curl = curl_library::get(); !curl) return tl::unexpected(std::move(curl.error()));
  return {};
}

}  // namespace penstock
