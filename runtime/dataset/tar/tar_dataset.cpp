#include "runtime/dataset/tar/tar_dataset.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/fingerprint.hpp"
#include "runtime/dataset/picture/webp.hpp"
#include "runtime/dataset/records/npy_header.hpp"
#include "runtime/dataset/store_settings.hpp"
#include "runtime/dataset/tar/member_number.hpp"
#include "runtime/dataset/tar/shard_list.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace penstock {
namespace {

constexpr std::uint64_t member_bytes_max = 2 * GiB;

std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// ".jpg, .jpeg or .png"
std::string extensions_of(const member_choice& choice) {
  std::string text;
  for (std::size_t i = 0; i < choice.extensions.size(); ++i)
    text += fmt::format("{}.{}",
                        i == 0                              ? ""
                        : i + 1 == choice.extensions.size() ? " or "
                                                            : ", ",
                        printable(choice.extensions[i]));
  return text;
}

std::string_view words_for(indexed_kind kind) noexcept {
  switch (kind) {
    case indexed_kind::link:
      return "a link, which is not followed: archive the file itself (tar --hard-dereference)";
    case indexed_kind::sparse: return "a sparse file, which is not read: archive it without --sparse";
    case indexed_kind::file:
    case indexed_kind::other: break;
  }
  return "neither a file nor a link";
}

std::int64_t number_in(std::string_view text) {
  std::int64_t value = 0;
  const std::errc status = number_of_text(text, value);
  if (status != std::errc{})
    throw error({errc::sample,
                 fmt::format("is '{}', {}", printable(shortened(text, 60)),
                             status == std::errc::result_out_of_range ? "which does not fit in 64 bits" : "not a whole number"),
                 0});
  return value;
}

using extension_totals = std::map<std::string, indexed_extension, std::less<>>;

/// All extensions of the shards with the totals of their members, for choosing tensors and for messages.
extension_totals totals_of(const tar_index& index) {
  extension_totals all;
  for (std::uint64_t shard = 0; shard < index.shards(); ++shard) {
    for (const indexed_extension& one : index.extensions(shard)) {
      indexed_extension& sum = all[std::string(one.text)];
      sum.members += one.members;
      sum.longest = std::max(sum.longest, one.longest);
    }
  }
  return all;
}

result<std::uint64_t> longest_of(const member_choice& choice, const extension_totals& all) {
  std::uint64_t members = 0;
  std::uint64_t longest = 0;
  for (const std::string& extension : choice.extensions) {
    if (const auto found = all.find(extension); found != all.end()) {
      members += found->second.members;
      longest = std::max(longest, found->second.longest);
    }
  }
  if (members > 0) return longest;
  std::vector<std::pair<std::uint64_t, std::string>> there;
  for (const auto& [text, facts] : all) there.emplace_back(facts.members, printable(shortened(text, 40)));
  std::ranges::sort(there, std::greater());
  constexpr std::size_t shown = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(shown, there.size()); ++i)
    names += fmt::format("{}.{}", i == 0 ? "" : ", ", there[i].second);
  if (there.size() > shown) names += ", ...";
  return refuse(
      errc::dataset,
      "no sample has a member {} for the tensor '{}': the shards have {}; [dataset.members] says which "
      "members become tensors",
      extensions_of(choice), choice.tensor, names.empty() ? "none at all" : names);
}

/// Whether some of the `samples` samples have none of the alternatives that come before WebP.
bool needs_webp(const member_choice& choice, const extension_totals& all, std::uint64_t samples) {
  if (choice.kind != member_kind::picture) return false;
  std::uint64_t earlier = 0;
  for (const std::string& extension : choice.extensions) {
    const auto found = all.find(extension);
    if (found == all.end()) continue;
    if (format_by_name(extension) == picture_format::webp && earlier < samples) return true;
    earlier += found->second.members;
  }
  return false;
}

}  // namespace

std::string name_of_sample(const tar_index& index, std::uint64_t sample) {
  return fmt::format("{}:{}", printable(index.shard(index.shard_of(sample)).name),
                     printable(index.key(sample)));
}

tar_dataset::tar_dataset(tar_index index, const config& settings, std::shared_ptr<object_store> store)
    : index_(std::move(index)),
      shards_(index_, folder_of_shards(settings.dataset.path), std::move(store)),
      pictures_(settings.image) {}

result<std::unique_ptr<tar_dataset>> tar_dataset::open(tar_index index, const config& settings) {
  auto choices = member_choices(settings.dataset.members);
  if (!choices) return tl::unexpected(std::move(choices.error()));
  if (index.samples() == 0)
    return refuse(errc::dataset, "the shards of '{}' hold no samples", printable(settings.dataset.path));
  auto store = store_for(settings, index.shard(0).name);
  if (!store) return tl::unexpected(std::move(store.error()));
  std::unique_ptr<tar_dataset> made(new tar_dataset(std::move(index), settings, std::move(*store)));
  if (auto ok = made->shards_.prepare(); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto ok = made->prepare(std::move(*choices)); !ok) return tl::unexpected(std::move(ok.error()));
  return made;
}

result<void> tar_dataset::prepare(std::vector<member_choice> choices) {
  fingerprint_hash hash("tar members");
  hash.add_text(index_.fingerprint());
  description_.type = "tar";
  description_.samples = index_.samples();
  const extension_totals totals = totals_of(index_);
  std::vector<tensor_spec> crops;
  for (member_choice& choice : choices) {
    hash.add_text(choice.tensor);
    for (const std::string& extension : choice.extensions) hash.add_text(extension);
    wanted_tensor& wanted = wanted_.emplace_back();
    wanted.choice = std::move(choice);
    const auto longest = longest_of(wanted.choice, totals);
    if (!longest) return tl::unexpected(longest.error());
    if (needs_webp(wanted.choice, totals, index_.samples()))
      if (auto ok = check_webp(); !ok) return ok;
    auto spec = spec_of(wanted, *longest);
    if (!spec) return tl::unexpected(std::move(spec.error()));
    description_.tensors.push_back(std::move(*spec));
    if (wanted.choice.kind != member_kind::picture) continue;
    wanted.crop = choices.size() + crops.size();
    crops.push_back(
        {crops.empty() ? "crop" : wanted.choice.tensor + "_crop", dtype::int32, {4}, tensor_role::record});
  }
  description_.tensors.insert(description_.tensors.end(), crops.begin(), crops.end());
  if (!crops.empty()) {
    flip_ = description_.tensors.size();
    description_.tensors.push_back({"flip", dtype::uint8, {}, tensor_role::record});
  }
  description_.fingerprint = hash.hex();
  return {};
}

result<tensor_spec> tar_dataset::spec_of(wanted_tensor& wanted, std::uint64_t longest) {
  const std::string& name = wanted.choice.tensor;
  switch (wanted.choice.kind) {
    case member_kind::picture: {
      const size_2d& size = pictures_.config().size;
      return tensor_spec{name, dtype::uint8, {size[0], size[1], 3}, tensor_role::image};
    }
    case member_kind::number: return tensor_spec{name, dtype::int64, {}, tensor_role::data};
    case member_kind::array: return spec_of_array(wanted);
    case member_kind::bytes: break;
  }
  if (longest > member_bytes_max)
    return refuse(
        errc::dataset, "the largest member {} for the tensor '{}' has {}: at most {} fit into a tensor",
        extensions_of(wanted.choice), name, bytes_for_people(longest), bytes_for_people(member_bytes_max));
  return tensor_spec{name,
                     dtype::uint8,
                     {static_cast<std::uint32_t>(std::max<std::uint64_t>(1, longest))},
                     tensor_role::data,
                     length_rule::batch_maximum};
}

/// All samples must have the form of the first sample that has the member.
result<tensor_spec> tar_dataset::spec_of_array(wanted_tensor& wanted) {
  for (std::uint64_t sample = 0; sample < index_.samples(); ++sample) {
    if (auto ok = index_.read(sample, sample_); !ok) return tl::unexpected(std::move(ok.error()));
    const auto member = choose(wanted.choice, sample_);
    if (!member) continue;
    const auto failed = [&](const failure& why) {
      return refuse(
          why.code, "the shape of tensor '{}' is that of the first sample, '{}', but its member .{} {}",
          wanted.choice.tensor, name_of_sample(index_, sample), printable(member->extension), why.message);
    };
    indexed_member start = *member;
    start.bytes = std::min<std::uint64_t>(start.bytes, npy_header_max);
    const auto contents = shards_.read(sample_.shard, std::span(&start, 1));
    if (!contents) return failed(contents.error());
    const auto header = parse_npy_array(contents->front(), member->bytes);
    if (!header) return failed(header.error());
    wanted.array = {header->element, header->shape};
    return tensor_spec{wanted.choice.tensor, header->element, {header->shape.begin(), header->shape.end()}};
  }
  return refuse(errc::dataset, "no sample has a readable member {} for the tensor '{}'",
                extensions_of(wanted.choice), wanted.choice.tensor);
}

result<indexed_member> tar_dataset::choose(const member_choice& choice, const indexed_sample& sample) {
  for (const std::string& extension : choice.extensions) {
    const auto is_one = [&](const indexed_member& member) { return member.extension == extension; };
    const auto found = std::ranges::find_if(sample.members, is_one);
    if (found == sample.members.end()) continue;
    const auto second = std::find_if(found + 1, sample.members.end(), is_one);
    if (second != sample.members.end())
      return refuse(errc::sample, "it has two members .{}, at offsets {} and {} of its shard",
                    printable(extension), found->header_at, second->header_at);
    if (found->kind != indexed_kind::file)
      return refuse(errc::sample, "its member .{}, at offset {} of its shard, is {}", printable(extension),
                    found->header_at, words_for(found->kind));
    return *found;
  }
  std::vector<std::string> there;
  for (const indexed_member& member : sample.members) there.push_back("." + printable(member.extension));
  return refuse(errc::sample, "it has no member {}: it has {}", extensions_of(choice),
                shortened(fmt::format("{}", fmt::join(there, ", ")), 200));
}

result<std::span<const std::span<const std::byte>>> tar_dataset::read(std::uint64_t index) {
  if (auto ok = index_.read(index, sample_); !ok) return tl::unexpected(std::move(ok.error()));
  members_.clear();
  for (const wanted_tensor& wanted : wanted_) {
    auto member = choose(wanted.choice, sample_);
    if (!member) return tl::unexpected(std::move(member.error()));
    const std::uint64_t most =
        wanted.choice.kind == member_kind::picture ? picture_bytes_max(pictures_.config()) : member_bytes_max;
    if (member->bytes > most)
      return refuse(errc::sample, "its member .{} is {}; the limit is {}", printable(member->extension),
                    bytes_for_people(member->bytes), bytes_for_people(most));
    members_.push_back(*member);
  }
  return shards_.read(sample_.shard, members_);
}

/// load() may be running on another thread, so this function uses only constant data.
void tar_dataset::expect(std::span<const std::uint64_t> samples) {
  if (!shards_.is_remote()) return;
  std::map<std::uint64_t, std::vector<byte_range>> by_shard;
  indexed_sample sample;
  std::vector<indexed_member> members;
  for (const std::uint64_t index : samples) {
    members.clear();
    if (!index_.read(index, sample)) continue;
    for (const wanted_tensor& wanted : wanted_)
      if (const auto member = choose(wanted.choice, sample); member && member->bytes <= member_bytes_max)
        members.push_back(*member);
    if (members.size() != wanted_.size()) continue;  // load() will report why
    std::ranges::copy(ranges_of(members), std::back_inserter(by_shard[sample.shard]));
  }
  for (auto& [shard, ranges] : by_shard) shards_.expect(shard, std::move(ranges));
}

void tar_dataset::load(const sample_request& request, const sample_slot& slot) {
  const auto contents = read(request.index);
  if (!contents) throw_failed(contents.error());
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    try {
      write(wanted_[i], i, (*contents)[i], request.random, slot);
    } catch (const error& e) {
      failure why = e.as_failure();
      why.message = fmt::format("its member .{} {}", printable(members_[i].extension), why.message);
      throw error(std::move(why));
    }
  }
}

void tar_dataset::write(const wanted_tensor& wanted, std::size_t tensor, std::span<const std::byte> contents,
                        random_source& random, const sample_slot& slot) {
  switch (wanted.choice.kind) {
    case member_kind::picture: write_picture(wanted, tensor, contents, random, slot); return;
    case member_kind::number: slot.as<std::int64_t>(tensor)[0] = number_in(text_of(contents)); return;
    case member_kind::array: {
      const auto header = value_or_throw(
          parse_npy_array(contents.first(std::min(contents.size(), npy_header_max)), contents.size()));
      if (header.element != wanted.array->element || header.shape != wanted.array->shape) {
        throw error(
            {errc::sample,
             fmt::format("is {} [{}], but that of the first sample is {} [{}]",
                         penstock::name_of(header.element), fmt::join(header.shape, ", "),
                         penstock::name_of(wanted.array->element), fmt::join(wanted.array->shape, ", ")),
             0});
      }
      std::ranges::copy(contents.subspan(header.data_at), slot.bytes(tensor).begin());
      return;
    }
    case member_kind::bytes: break;
  }
  slot.set_length(tensor, contents.size());  // before copying, because this call refuses more than fits in the slot
  std::ranges::copy(contents, slot.bytes(tensor).begin());
}

void tar_dataset::write_picture(const wanted_tensor& wanted, std::size_t tensor,
                                std::span<const std::byte> contents, random_source& random,
                                const sample_slot& slot) {
  random_source same_draws = random;
  auto chosen = pictures_.load(contents, format_by_name(members_[tensor].extension), same_draws,
                               slot.as<std::uint8_t>(tensor));
  if (!chosen) throw error({errc::sample, fmt::format("cannot be used: {}", chosen.error().message), 0});
  std::ranges::copy(crop_record(chosen->box), slot.as<std::int32_t>(wanted.crop).begin());
  slot.as<std::uint8_t>(flip_)[0] = chosen->flip ? 1 : 0;
}

std::string tar_dataset::name_of(std::uint64_t index) const {
  return name_of_sample(index_, index);
}

}  // namespace penstock
