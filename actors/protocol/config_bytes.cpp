#include "actors/protocol/config_bytes.hpp"

#include <bit>
#include <cstring>
#include <type_traits>

namespace penstock::protocol {
namespace {

// One list of fields for both directions: a visitor gets each member in the order of the key table.
#define PENSTOCK_TABLE(type, ...)                           \
  template <class Visitor, class Table>                     \
  requires std::is_same_v<std::remove_const_t<Table>, type> \
  void each_field(Visitor& visit, Table& table) {
#define PENSTOCK_KEY(type, name, ...) visit(table.name);
#define PENSTOCK_SUBTABLE(type, name) visit(table.name);
#define PENSTOCK_KEYS_OF(type, name) visit(table.name);
#define PENSTOCK_TABLE_END(type) }
#include <penstock/config_keys.def>

struct any_visitor {
  template <class T>
  void operator()(T&) {}
};
template <class T>
concept table = requires(T t, any_visitor visit) {
  each_field(visit, t);
};

class encoder {
 public:
  template <class T>
  void operator()(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      put(value);
    }
  }
  std::string bytes;

 private:
  void put(const std::string& s) {
    (*this)(static_cast<std::uint64_t>(s.size()));
    bytes += s;
  }
  void put(const byte_size& size) { (*this)(size.bytes); }
  void put(const std::chrono::nanoseconds& time) { (*this)(time.count()); }
  void put(const core_choice& choice) {
    (*this)(choice.rule);
    (*this)(choice.cores);
  }
  template <class T>
  void put(const std::optional<T>& maybe) {
    (*this)(maybe.has_value());
    if (maybe) (*this)(*maybe);
  }
  template <class T>
  void put(const std::vector<T>& list) {
    (*this)(static_cast<std::uint64_t>(list.size()));
    for (const T& item : list) (*this)(item);
  }
  template <class T, std::size_t N>
  void put(const std::array<T, N>& list) {
    for (const T& item : list) (*this)(item);
  }
  void put(const string_map& map) {
    (*this)(static_cast<std::uint64_t>(map.size()));
    for (const auto& [key, value] : map) {
      (*this)(key);
      (*this)(value);
    }
  }
  template <table T>
  void put(const T& t) {
    each_field(*this, t);
  }
};

class decoder {
 public:
  explicit decoder(std::string_view from) : rest_(from) {}

  template <class T>
  void operator()(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      take(&byte, 1);
      value = byte != 0;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      take(&value, sizeof value);
    } else {
      get(value);
    }
  }
  [[nodiscard]] bool complete() const { return good_ && rest_.empty(); }

 private:
  void take(void* to, std::size_t count) {
    if (count > rest_.size()) {
      good_ = false;
      return;
    }
    std::memcpy(to, rest_.data(), count);
    rest_.remove_prefix(count);
  }
  /// Every element takes at least one byte, so a count above the number of remaining bytes is wrong.
  std::uint64_t count() {
    std::uint64_t n = 0;
    (*this)(n);
    if (n <= rest_.size()) return n;
    good_ = false;
    return 0;
  }
  void get(std::string& s) {
    s.resize(count());
    take(s.data(), s.size());
  }
  void get(byte_size& size) { (*this)(size.bytes); }
  void get(std::chrono::nanoseconds& time) {
    std::int64_t ns = 0;
    (*this)(ns);
    time = std::chrono::nanoseconds(ns);
  }
  void get(core_choice& choice) {
    (*this)(choice.rule);
    (*this)(choice.cores);
  }
  template <class T>
  void get(std::optional<T>& maybe) {
    bool there = false;
    (*this)(there);
    maybe.reset();
    if (there) (*this)(maybe.emplace());
  }
  template <class T>
  void get(std::vector<T>& list) {
    list.clear();
    for (std::uint64_t n = count(); n > 0 && good_; --n) (*this)(list.emplace_back());
  }
  template <class T, std::size_t N>
  void get(std::array<T, N>& list) {
    for (T& item : list) (*this)(item);
  }
  void get(string_map& map) {
    map.clear();
    for (std::uint64_t n = count(); n > 0 && good_; --n) {
      std::string key;
      (*this)(key);
      (*this)(map[key]);
    }
  }
  template <table T>
  void get(T& t) {
    each_field(*this, t);
  }

  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

std::string config_as_bytes(const config& settings) {
  encoder out;
  out(settings);
  return std::move(out.bytes);
}

result<config> config_from_bytes(std::string_view bytes) {
  decoder in(bytes);
  config settings;
  in(settings);
  if (!in.complete())
    return refuse(errc::protocol, "the config in the message is truncated or corrupt ({} bytes)",
                  bytes.size());
  return settings;
}

}  // namespace penstock::protocol
