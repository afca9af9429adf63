#include "runtime/group/group_wire.hpp"

#include "runtime/group/wire_archive.hpp"

#include <algorithm>
#include <utility>

namespace penstock::group {
namespace {

template <class Archive>
void fields(Archive& io, in_archive<Archive, link_hello>& hello) {
  io(hello.protocol);
  io.exact(hello.group, group_name_max, "the name of the group");
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, rank_card>& card) {
  io(card.protocol);
  io(card.rank);
  io(card.world_size);
  io(card.process);
  io(card.starts);
  io(card.one_at_a_time);
  io.exact(card.host, host_name_max, "a host's name");
  io(card.pid);
  io.exact(card.device, device_name_max, "a device's name");
  io(card.shares_device);
  io.within(settings_bytes_max, "settings", [&] {
    io.list(card.settings, settings_max, 8, "settings", [&io](auto& one) {
      io.exact(one.first, settings_bytes_max, "the name of a setting");
      io.exact(one.second, settings_bytes_max, "a setting");
    });
  });
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, stream_facts>& facts) {
  io.exact(facts.fingerprint, fingerprint_max, "a fingerprint");
  io(facts.epoch);
  io(facts.position);
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, group_cause>& cause) {
  io(cause.rank);
  io.exact(cause.host, host_name_max, "a host's name");
  io(cause.pid);
  io.text(cause.cause, text_max);
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, group_view>& view) {
  const auto inner = [&io](auto& part) { fields(io, part); };
  io(view.generation);
  io(view.coordinator);
  io(view.phase, group_phase::over);
  ranks_of(io, view.incarnations);
  io.maybe(view.facts, inner);
  io.maybe(view.limit, [&io](auto& limit) { io(limit); });
  io(view.communicator);
  io(view.agreed);
  io(view.outcome, group_outcome::failed);
  io.maybe(view.cause, inner);
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, communicator_state>& state) {
  io(state.number);
  io(state.at, communicator_state::how::aborted);
  io.text(state.cause, text_max);
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, member_report>& report) {
  fields(io, report.card);
  io(report.number);
  io(report.incarnation);
  io(report.lapsed);
  fields(io, report.view);
  io.maybe(report.facts, [&io](auto& facts) { fields(io, facts); });
  io(report.steps);
  io(report.stream_over);
  io(report.frozen);
  io(report.stop_wanted);
  io(report.left);
  io.maybe(report.failed, [&io](auto& cause) { fields(io, cause); });
  fields(io, report.communicator);
  io(report.settled);
  io.list(report.held, held_max, 8, "snapshots", [&io](auto& step) { io(step); });
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, communicator_order>& order) {
  io(order.what, communicator_order::act::abort);
  io(order.number);
  io.exact(order.id, communicator_id_max, "a communicator's id");
}

template <class Archive>
void fields(Archive& io, in_archive<Archive, group_order>& order) {
  fields(io, order.view);
  io(order.number);
  io(order.heard);
  io(order.standing, rank_standing::refused);
  io.text(order.refusal, text_max);
  io(order.incarnation);
  io(order.go);
  io(order.everybody_knows);
  ranks_of(io, order.lost);
  fields(io, order.communicator);
  io.exact(order.host, host_name_max, "a host's name");
  io(order.pid);
}

std::string framed(frame_type type, std::string_view payload) {
  wire_writer header;
  header(static_cast<std::uint32_t>(payload.size()));
  header(static_cast<std::uint8_t>(type));
  std::string frame = header.take();
  frame.append(payload);
  return frame;
}

template <class Message>
result<std::string> encoded(const Message& message, frame_type type) {
  wire_writer to;
  fields(to, message);
  if (to.refusal().empty()) return framed(type, to.take());
  return refuse(errc::config, "a message to the group cannot be sent: {}", to.refusal());
}

template <class Message>
result<Message> decoded(std::string_view payload, std::uint32_t world_size, const char* what) {
  wire_reader from(payload, world_size);
  Message message;
  fields(from, message);
  if (auto ok = from.done(what); !ok) return tl::unexpected(std::move(ok.error()));
  return message;
}

}  // namespace

std::string encode(const link_hello& hello) {
  wire_writer to;
  for (const char c : hello_magic) to(static_cast<std::uint8_t>(c));
  fields(to, link_hello{hello.protocol, hello.group.substr(0, group_name_max)});
  return framed(frame_type::hello, to.take());
}

result<std::string> encode(const member_report& report) {
  return encoded(report, frame_type::report);
}

result<std::string> encode(const group_order& order) {
  return encoded(order, frame_type::order);
}

std::string attachment_frame(std::string_view bytes) {
  return framed(frame_type::attachment, bytes);
}

result<link_hello> decode_hello(std::string_view payload) {
  if (!payload.starts_with(hello_magic))
    return refuse(errc::protocol, "it does not begin with {}", hello_magic);
  return decoded<link_hello>(payload.substr(hello_magic.size()), 0, "the first message");
}

result<member_report> decode_report(std::string_view payload, std::uint32_t world_size) {
  return decoded<member_report>(payload, world_size, "a report");
}

result<group_order> decode_order(std::string_view payload, std::uint32_t world_size) {
  return decoded<group_order>(payload, world_size, "an order");
}

void frame_cutter::feed(std::string_view bytes) {
  bytes_.erase(0, std::exchange(begin_, 0));
  bytes_.append(bytes);
}

result<std::optional<frame_cutter::frame>> frame_cutter::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < frame_header_bytes) return std::optional<frame>();
  std::uint32_t size = 0;
  wire_reader(rest, 0)(size);
  const auto type = static_cast<std::uint8_t>(rest[4]);
  if (type > static_cast<std::uint8_t>(frame_type::attachment))
    return refuse(errc::protocol, "a message of unknown type {}", type);
  if (size > payload_max_) {
    return refuse(errc::protocol, "a message announces {} bytes, but at most {} are allowed", size,
                  payload_max_);
  }
  if (rest.size() - frame_header_bytes < size) return std::optional<frame>();
  begin_ += frame_header_bytes + size;
  return std::optional(frame{static_cast<frame_type>(type), rest.substr(frame_header_bytes, size)});
}

}  // namespace penstock::group
