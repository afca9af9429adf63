// Bytes that an unknown peer may send to the ranks of a group: however they are split, they yield the same frames or are refused. An
// accepted payload can be sent again and arrives unchanged.
#include "runtime/group/group_wire.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

using namespace penstock;
using namespace penstock::group;

namespace {

constexpr std::uint32_t world_size = 8;

struct heard {
  std::vector<std::pair<frame_type, std::string>> frames;
  bool refused = false;
  bool operator==(const heard&) const = default;
};

heard read(std::string_view bytes, std::size_t piece) {
  frame_cutter cutter(frame_bytes_max(world_size));
  heard all;
  for (std::size_t at = 0; at < bytes.size() && !all.refused; at += piece) {
    cutter.feed(bytes.substr(at, piece));
    auto next = cutter.next();
    for (; next && *next; next = cutter.next()) all.frames.emplace_back((*next)->type, (*next)->payload);
    all.refused = !next;
  }
  return all;
}

template <class Decode>
void check(std::string_view payload, Decode decode) {
  const auto message = decode(payload, world_size);
  if (!message) return;
  const auto frame = encode(*message);
  if (!frame) std::abort();
  const auto again = decode(std::string_view(*frame).substr(frame_header_bytes), world_size);
  if (!again || encode(*again).value() != *frame) std::abort();
}

member_report a_report() {
  member_report report;
  report.card.host = "host";
  report.card.settings = {{"sampler.seed", "1"}, {"sampler.batch_size", "32"}};
  report.facts = stream_facts{"fingerprint", 1, 2};
  report.failed = group_cause{2, "node7", 4711, "no more"};
  return report;
}

group_order an_order() {
  group_order order;
  order.view.incarnations = {1, 1, 2};
  order.view.cause = group_cause{1, "host", 4711, "it failed"};
  order.lost = {1};
  order.communicator.id = "id";
  return order;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) return 0;
  const heard whole = read(bytes, bytes.size());
  if (read(bytes, 1 + bytes.size() / 3) != whole) std::abort();
  for (const auto& [type, payload] : whole.frames) {
    check(payload, decode_report);
    check(payload, decode_order);
    static_cast<void>(decode_hello(payload));
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string hello = encode(link_hello{group_protocol, "job/train"});
  return {hello, encode(a_report()).value(), encode(an_order()).value(), hello + encode(a_report()).value()};
}
