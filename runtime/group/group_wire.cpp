#include "runtime/group/group_wire.hpp"

#include "runtime/base/text.hpp"

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::group {
namespace {

// One description of each message serves both directions: fields(archive, message), where the archive is a writer
// or a reader.

template <class T>
concept number = std::unsigned_integral<T> && !std::same_as<T, bool>;

class writer {
 public:
  static constexpr bool reads = false;

  template <number T>
  void operator()(const T& value) {
    for (unsigned i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>((value >> (8 * i)) & 0xffU));
  }
  void operator()(const std::int32_t& value) { (*this)(static_cast<std::uint32_t>(value)); }
  void operator()(const bool& value) { bytes_.push_back(value ? 1 : 0); }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(const Enum& value, Enum /*last*/) { (*this)(static_cast<std::uint8_t>(value)); }
  /// For people: cut to text_max.
  void text(const std::string& value) { put(shortened(value, text_max)); }
  /// For programs: refused if too long.
  void exact(const std::string& value, std::size_t limit, const char* what) {
    if (value.size() > limit) too_large(what, value.size(), limit);
    put(value);
  }
  void numbers(const std::vector<std::uint32_t>& values) {
    (*this)(static_cast<std::uint32_t>(values.size()));
    for (const std::uint32_t value : values) (*this)(value);
  }
  void steps(const std::vector<std::uint64_t>& values) {
    if (values.size() > held_max) too_large("number of snapshots", values.size(), held_max);
    (*this)(static_cast<std::uint32_t>(values.size()));
    for (const std::uint64_t value : values) (*this)(value);
  }
  void settings(const std::vector<std::pair<std::string, std::string>>& values) {
    if (values.size() > settings_max) too_large("number of settings", values.size(), settings_max);
    const std::size_t begin = bytes_.size();
    (*this)(static_cast<std::uint32_t>(values.size()));
    for (const auto& [name, value] : values) {
      put(name);
      put(value);
    }
    if (bytes_.size() - begin > settings_bytes_max)
      too_large("settings", bytes_.size() - begin, settings_bytes_max);
  }
  template <class T, class Fields>
  void maybe(const std::optional<T>& value, Fields its) {
    (*this)(value.has_value());
    if (value) its(*value);
  }

  /// As a frame.
  result<std::string> done(frame_type type) {
    if (!refusal_.empty()) return refuse(errc::config, "a message to the group cannot be sent: {}", refusal_);
    writer header;
    header(static_cast<std::uint32_t>(bytes_.size()));
    header(static_cast<std::uint8_t>(type));
    return header.bytes_ + bytes_;
  }

 private:
  void put(std::string_view value) {
    (*this)(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
  }
  void too_large(const char* what, std::size_t size, std::size_t limit) {
    if (refusal_.empty()) refusal_ = fmt::format("{} of {}, but at most {} can be sent", what, size, limit);
  }

  std::string bytes_;
  std::string refusal_;
};

class reader {
 public:
  static constexpr bool reads = true;

  reader(std::string_view bytes, std::uint32_t world_size) : rest_(bytes), world_size_(world_size) {}

  template <number T>
  void operator()(T& value) {
    const std::string_view raw = take(sizeof(T));
    value = 0;
    for (unsigned i = 0; i < raw.size(); ++i)
      value = static_cast<T>(value |
                             static_cast<T>(static_cast<T>(static_cast<unsigned char>(raw[i])) << (8 * i)));
  }
  void operator()(std::int32_t& value) {
    std::uint32_t raw = 0;
    (*this)(raw);
    value = static_cast<std::int32_t>(raw);
  }
  void operator()(bool& value) {
    std::uint8_t raw = 0;
    (*this)(raw);
    if (raw > 1) fail("a truth value");
    value = raw == 1;
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(Enum& value, Enum last) {
    std::uint8_t raw = 0;
    (*this)(raw);
    if (raw > static_cast<std::uint8_t>(last)) return fail("an enumerator");
    value = static_cast<Enum>(raw);
  }
  void text(std::string& value) { exact(value, text_max, "a text"); }
  void exact(std::string& value, std::size_t limit, const char* what) {
    std::uint32_t size = 0;
    (*this)(size);
    if (size > limit) return fail(what);
    value = take(size);
  }
  void numbers(std::vector<std::uint32_t>& values) {
    std::uint32_t count = 0;
    (*this)(count);
    if (count > world_size_ || count > rest_.size() / sizeof(std::uint32_t)) return fail("a list of ranks");
    values.resize(count);
    for (std::uint32_t& value : values) (*this)(value);
  }
  void steps(std::vector<std::uint64_t>& values) {
    std::uint32_t count = 0;
    (*this)(count);
    if (count > held_max) return fail("a list of snapshots");
    values.resize(count);
    for (std::uint64_t& value : values) (*this)(value);
  }
  void settings(std::vector<std::pair<std::string, std::string>>& values) {
    std::uint32_t count = 0;
    (*this)(count);
    if (count > settings_max) return fail("the settings");
    const std::size_t before = rest_.size() + sizeof count;
    for (std::uint32_t i = 0; i < count && good(); ++i) {
      auto& [name, value] = values.emplace_back();
      exact(name, settings_bytes_max, "the name of a setting");
      exact(value, settings_bytes_max, "a setting");
    }
    if (before - rest_.size() > settings_bytes_max) fail("the settings");
  }
  template <class T, class Fields>
  void maybe(std::optional<T>& value, Fields its) {
    bool there = false;
    (*this)(there);
    if (there && good()) its(value.emplace());
  }

  [[nodiscard]] bool good() const noexcept { return wrong_ == nullptr; }
  result<void> done(const char* message) const {
    if (!good()) return refuse(errc::protocol, "{} is truncated or corrupt: {}", message, wrong_);
    if (!rest_.empty())
      return refuse(errc::protocol, "{} is followed by {} stray bytes", message, rest_.size());
    return {};
  }

 private:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) fail("its end is missing");
    if (!good()) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  void fail(const char* what) {
    if (wrong_ == nullptr) wrong_ = what;
    rest_ = {};
  }

  std::string_view rest_;
  std::uint32_t world_size_;
  const char* wrong_ = nullptr;
};

/// Const for a writer.
template <class Archive, class T>
using in = std::conditional_t<Archive::reads, T, const T>;

template <class Archive>
void fields(Archive& io, in<Archive, link_hello>& hello) {
  io(hello.protocol);
  io.exact(hello.group, group_name_max, "the name of the group");
}

template <class Archive>
void fields(Archive& io, in<Archive, rank_card>& card) {
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
  io.settings(card.settings);
}

template <class Archive>
void fields(Archive& io, in<Archive, stream_facts>& facts) {
  io.exact(facts.fingerprint, fingerprint_max, "a fingerprint");
  io(facts.epoch);
  io(facts.position);
}

template <class Archive>
void fields(Archive& io, in<Archive, group_cause>& cause) {
  io(cause.rank);
  io.exact(cause.host, host_name_max, "a host's name");
  io(cause.pid);
  io.text(cause.cause);
}

template <class Archive>
void fields(Archive& io, in<Archive, group_view>& view) {
  const auto inner = [&io](auto& part) { fields(io, part); };
  io(view.generation);
  io(view.coordinator);
  io(view.phase, group_phase::over);
  io.numbers(view.incarnations);
  io.maybe(view.facts, inner);
  io.maybe(view.limit, [&io](auto& limit) { io(limit); });
  io(view.communicator);
  io(view.agreed);
  io(view.outcome, group_outcome::failed);
  io.maybe(view.cause, inner);
}

template <class Archive>
void fields(Archive& io, in<Archive, communicator_state>& state) {
  io(state.number);
  io(state.at, communicator_state::how::aborted);
  io.text(state.cause);
}

template <class Archive>
void fields(Archive& io, in<Archive, member_report>& report) {
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
  io.steps(report.held);
}

template <class Archive>
void fields(Archive& io, in<Archive, communicator_order>& order) {
  io(order.what, communicator_order::act::abort);
  io(order.number);
  io.exact(order.id, communicator_id_max, "a communicator's id");
}

template <class Archive>
void fields(Archive& io, in<Archive, group_order>& order) {
  fields(io, order.view);
  io(order.number);
  io(order.heard);
  io(order.standing, rank_standing::refused);
  io.text(order.refusal);
  io(order.incarnation);
  io(order.go);
  io(order.everybody_knows);
  io.numbers(order.lost);
  fields(io, order.communicator);
  io.exact(order.host, host_name_max, "a host's name");
  io(order.pid);
}

template <class Message>
result<std::string> encoded(const Message& message, frame_type type) {
  writer to;
  fields(to, message);
  return to.done(type);
}

template <class Message>
result<Message> decoded(std::string_view payload, std::uint32_t world_size, const char* what) {
  reader from(payload, world_size);
  Message message;
  fields(from, message);
  if (auto ok = from.done(what); !ok) return tl::unexpected(std::move(ok.error()));
  return message;
}

std::uint32_t number_at(std::string_view bytes) {
  std::uint32_t value = 0;
  reader(bytes, 0)(value);
  return value;
}

}  // namespace

std::string encode(const link_hello& hello) {
  writer to;
  for (const char c : hello_magic) to(static_cast<std::uint8_t>(c));
  fields(to, link_hello{hello.protocol, hello.group.substr(0, group_name_max)});
  return to.done(frame_type::hello).value();
}

result<std::string> encode(const member_report& report) {
  return encoded(report, frame_type::report);
}

result<std::string> encode(const group_order& order) {
  return encoded(order, frame_type::order);
}

std::string attachment_frame(std::string_view bytes) {
  writer empty;
  std::string frame = empty.done(frame_type::attachment).value();
  for (unsigned i = 0; i < 4; ++i) frame[i] = static_cast<char>((bytes.size() >> (8 * i)) & 0xffU);
  return frame.append(bytes);
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
  const std::uint32_t size = number_at(rest.substr(0, 4));
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
