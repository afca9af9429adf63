// The fingerprint of a dataset. Two listings have the same fingerprint if and only if they name the same samples.
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include "runtime/base/dataset_type.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/listing/listing.hpp"

#include <xxhash.h>

namespace penstock {

struct fingerprint_hash::state {
  XXH3_state_t hash;
};

fingerprint_hash::fingerprint_hash(std::string_view type) : state_(std::make_unique<state>()) {
  XXH3_128bits_reset(&state_->hash);
  add_text("penstock dataset 1");
  add_text(type);
}

fingerprint_hash::~fingerprint_hash() = default;

void fingerprint_hash::add_number(std::uint64_t number) noexcept {
  XXH3_128bits_update(&state_->hash, &number, sizeof number);
}

void fingerprint_hash::add_text(std::string_view text) noexcept {
  add_number(text.size());
  XXH3_128bits_update(&state_->hash, text.data(), text.size());
}

std::string fingerprint_hash::hex() const {
  const XXH128_hash_t sum = XXH3_128bits_digest(&state_->hash);
  return fmt::format("{:016x}{:016x}", sum.high64, sum.low64);
}

std::string fingerprint_of(const listing& list) {
  fingerprint_hash hash(name_of(list.type));
  hash.add_number(list.classes.size());
  for (const std::string& name : list.classes) hash.add_text(name);
  hash.add_text(name_of(list.element));
  hash.add_number(list.shape.size());
  for (const std::uint32_t side : list.shape) hash.add_number(side);
  hash.add_number(list.files.size());
  for (const listed_file& file : list.files) {
    hash.add_text(list.name_of(file));
    hash.add_number(file.size);
    hash.add_number(file.label);
  }
  return hash.hex();
}

}  // namespace penstock
