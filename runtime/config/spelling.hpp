// How the enumerators of <penstock/config.hpp> are spelled in a config file: with '-' for '_', and exceptions
// such as "throw" for raise. No function has a default case, so that the compiler warns about a missing
// enumerator.
#pragma once

#include "runtime/base/dataset_type.hpp"
#include "runtime/base/sampler_kind.hpp"
#include "runtime/base/stream_shape.hpp"

#include <penstock/config.hpp>

#include <string_view>
#include <vector>

namespace penstock::config_file {

constexpr std::string_view spelling(dataset_type value) noexcept {
  return name_of(value);
}

constexpr std::string_view spelling(boundary_rule value) noexcept {
  switch (value) {
    case boundary_rule::ignore: return "ignore";
    case boundary_rule::mask: return "mask";
    case boundary_rule::pack: return "pack";
  }
  return {};
}

constexpr std::string_view spelling(fill_kind value) noexcept {
  switch (value) {
    case fill_kind::stamp: return "stamp";
    case fill_kind::memset: return "memset";
    case fill_kind::memcpy: return "memcpy";
    case fill_kind::random: return "random";
  }
  return {};
}

constexpr std::string_view spelling(fault_kind value) noexcept {
  switch (value) {
    case fault_kind::segv: return "segv";
    case fault_kind::abort: return "abort";
    case fault_kind::exit: return "exit";
    case fault_kind::kill: return "kill";
    case fault_kind::hang: return "hang";
    case fault_kind::raise: return "throw";
    case fault_kind::leak: return "leak";
    case fault_kind::stop: return "stop";
    case fault_kind::slow: return "slow";
  }
  return {};
}

constexpr std::string_view spelling(augment_kind value) noexcept {
  switch (value) {
    case augment_kind::none: return "none";
    case augment_kind::centre_crop: return "centre-crop";
    case augment_kind::random_resized_crop: return "random-resized-crop";
  }
  return {};
}

constexpr std::string_view spelling(orientation_rule value) noexcept {
  switch (value) {
    case orientation_rule::exif: return "exif";
    case orientation_rule::ignore: return "ignore";
  }
  return {};
}

constexpr std::string_view spelling(decoder_rule value) noexcept {
  switch (value) {
    case decoder_rule::cpu: return "cpu";
    case decoder_rule::gpu: return "gpu";
    case decoder_rule::hybrid: return "hybrid";
  }
  return {};
}

constexpr std::string_view spelling(start_rule value) noexcept {
  switch (value) {
    case start_rule::lazy: return "lazy";
    case start_rule::eager: return "eager";
  }
  return {};
}

constexpr std::string_view spelling(start_method_rule value) noexcept {
  switch (value) {
    case start_method_rule::from_template: return "template";
    case start_method_rule::exec: return "exec";
  }
  return {};
}

constexpr std::string_view spelling(core_rule value) noexcept {
  switch (value) {
    case core_rule::near_gpu: return "auto";
    case core_rule::anywhere: return "none";
  }
  return {};
}

constexpr std::string_view spelling(bad_sample_rule value) noexcept {
  switch (value) {
    case bad_sample_rule::skip: return "skip";
    case bad_sample_rule::replace: return "replace";
    case bad_sample_rule::fail: return "fail";
  }
  return {};
}

constexpr std::string_view spelling(restart_type value) noexcept {
  switch (value) {
    case restart_type::permanent: return "permanent";
    case restart_type::transient: return "transient";
    case restart_type::temporary: return "temporary";
  }
  return {};
}

constexpr std::string_view spelling(sampler_kind value) noexcept {
  return name_of(value);
}

constexpr std::string_view spelling(uneven_rule value) noexcept {
  return name_of(value);
}

constexpr std::string_view spelling(order_rule value) noexcept {
  switch (value) {
    case order_rule::strict: return "strict";
    case order_rule::relaxed: return "relaxed";
  }
  return {};
}

constexpr std::string_view spelling(placement_rule value) noexcept {
  switch (value) {
    case placement_rule::embedded: return "embedded";
    case placement_rule::process: return "process";
  }
  return {};
}

constexpr std::string_view spelling(image_layout value) noexcept {
  switch (value) {
    case image_layout::nchw: return "nchw";
    case image_layout::nhwc: return "nhwc";
  }
  return {};
}

constexpr std::string_view spelling(exclusive_rule value) noexcept {
  switch (value) {
    case exclusive_rule::off: return "off";
    case exclusive_rule::report: return "report";
    case exclusive_rule::enforce: return "enforce";
  }
  return {};
}

constexpr std::string_view spelling(poison_rule value) noexcept {
  switch (value) {
    case poison_rule::fail: return "fail";
    case poison_rule::skip: return "skip";
  }
  return {};
}

constexpr std::string_view spelling(compress_rule value) noexcept {
  switch (value) {
    case compress_rule::none: return "none";
    case compress_rule::lz4: return "lz4";
    case compress_rule::zstd: return "zstd";
  }
  return {};
}

constexpr std::string_view spelling(verify_rule value) noexcept {
  switch (value) {
    case verify_rule::automatic: return "auto";
    case verify_rule::always: return "always";
    case verify_rule::off: return "never";
  }
  return {};
}

constexpr std::string_view spelling(join_rule value) noexcept {
  switch (value) {
    case join_rule::automatic: return "auto";
    case join_rule::not_at_all: return "never";
  }
  return {};
}

constexpr std::string_view spelling(communicator_kind value) noexcept {
  switch (value) {
    case communicator_kind::none: return "none";
    case communicator_kind::nccl: return "nccl";
  }
  return {};
}

constexpr std::string_view spelling(lost_rank_rule value) noexcept {
  switch (value) {
    case lost_rank_rule::fail: return "fail";
    case lost_rank_rule::wait: return "wait";
  }
  return {};
}

constexpr std::string_view spelling(log_level value) noexcept {
  switch (value) {
    case log_level::debug: return "debug";
    case log_level::info: return "info";
    case log_level::warn: return "warn";
    case log_level::error: return "error";
    case log_level::off: return "off";
  }
  return {};
}

inline std::string_view spelling(dtype value) noexcept {
  const std::string_view name = name_of(value);
  return name == "unknown" ? std::string_view() : name;
}

/// All spellings, in the order of the enumerators, whose values are 0, 1, 2, ...
template <class Enum>
std::vector<std::string_view> spellings() {
  std::vector<std::string_view> all;
  for (unsigned i = 0;; ++i) {
    const std::string_view name = spelling(static_cast<Enum>(i));
    if (name.empty()) return all;
    all.push_back(name);
  }
}

}  // namespace penstock::config_file
