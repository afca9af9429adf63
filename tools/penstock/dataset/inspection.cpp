#include "tools/penstock/dataset/inspection.hpp"

#include "runtime/base/dataset_type.hpp"
#include "runtime/base/layout.hpp"
#include "runtime/base/remote_path.hpp"
#include "runtime/dataset/arrays/array_index.hpp"
#include "runtime/dataset/factory.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "runtime/dataset/listing/found_files.hpp"
#include "runtime/dataset/listing/index.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/dataset/store_settings.hpp"
#include "runtime/dataset/tar/member_name.hpp"
#include "tools/penstock/dataset/custom_samples.hpp"
#include "tools/penstock/dataset/tar_inspection.hpp"
#include "tools/penstock/dataset/value_counter.hpp"

#include <penstock/random.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>

namespace penstock::inspected {
namespace {

constexpr std::uint64_t picture_bytes_max = std::uint64_t{1} << 30U;
constexpr std::size_t end_bytes =
    64 * 1024;  // the end marker must be in the last 64 KiB; some programs append data after it
constexpr std::uint64_t told_every = 256;

spread spread_of(std::vector<std::uint64_t> numbers) {
  if (numbers.empty()) return {};
  std::ranges::sort(numbers);
  return {numbers.front(), numbers[numbers.size() / 2], numbers.back()};
}

// ---- pictures

struct picture_facts {
  std::string trouble;
  picture_info info;
  std::uint64_t content = 0;  ///< a hash
  bool readable = false;
};

bool ends_properly(std::span<const std::byte> file, picture_format format) {
  using namespace std::string_view_literals;
  const std::string_view all(reinterpret_cast<const char*>(file.data()), file.size());
  const std::string_view end = all.substr(all.size() - std::min(all.size(), end_bytes));
  switch (format) {
    case picture_format::png: return end.find("IEND"sv) != std::string_view::npos;
    case picture_format::webp: return true;  // probe() has compared its length
    case picture_format::jpeg: break;
  }
  return end.find("\xff\xd9"sv) != std::string_view::npos;
}

extent as_seen(const picture_info& info) {
  // Orientations from 5 on are rotated by 90 degrees.
  return info.orientation >= 5 ? extent{info.stored.height, info.stored.width} : info.stored;
}

picture_facts look_at_picture(const std::string& path, const result<std::span<const std::byte>>& bytes,
                              const config& settings) {
  picture_facts p;
  if (!bytes) {
    p.trouble = bytes.error().message;
    return p;
  }
  const picture_format promised = format_by_name(path);
  const auto info = probe(*bytes, promised);
  if (!info) {
    p.trouble = info.error().message;
    return p;
  }
  p.info = *info;
  p.readable = true;
  p.content = std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  const std::uint64_t pixels = std::uint64_t{info->stored.width} * info->stored.height;
  if (!ends_properly(*bytes, info->format)) {
    p.trouble = "truncated: it has no end marker";
  } else if (pixels > settings.image.max_pixels) {
    p.trouble = fmt::format("{} x {} pixels are more than max_pixels = {}", info->stored.width,
                            info->stored.height, settings.image.max_pixels);
  } else if (info->format != promised) {
    p.trouble = fmt::format("named as a {}, but it is a {}", name_of(promised), name_of(info->format));
  }
  return p;
}

result<std::vector<picture_facts>> look_at_pictures(const listing& list, const config& settings, unsigned threads,
                                                    const progress& told) {
  const std::string folder = folder_of_pictures(settings.dataset.path);
  const auto store = store_for(settings, "");
  if (!store) return tl::unexpected(store.error());
  std::vector<picture_facts> all(list.files.size());
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> done{0};
  std::mutex telling;
  {
    std::vector<std::jthread> pool;
    for (unsigned t = 0; t < std::max(threads, 1U); ++t) {
      pool.emplace_back([&] {
        file_reader reader;
        for (std::uint64_t i = next++; i < all.size(); i = next++) {
          const listed_file& file = list.files[i];
          const std::string path = path_of_file(folder, list.name_of(file));
          const auto object = *store ? (*store)->object(path, {file.size, std::string(list.tag_of(file))}) : nullptr;
          all[i] = look_at_picture(
              path, object ? reader.read(*object, picture_bytes_max) : reader.read(path, picture_bytes_max), settings);
          if (++done % told_every == 0 && told) {
            const std::lock_guard one_at_a_time(telling);
            told(done, all.size());
          }
        }
      });
    }
  }
  if (told) told(all.size(), all.size());
  return all;
}

/// Finds duplicate pictures. Duplicates in different classes have contradictory labels; duplicates in one
/// class count twice.
void add_twins(const listing& list, std::vector<picture_facts>& pictures) {
  struct key {
    std::uint64_t size, content;
    bool operator==(const key&) const = default;
  };
  struct hash {
    std::size_t operator()(const key& k) const { return k.size * 0x9e3779b97f4a7c15ULL ^ k.content; }
  };
  std::unordered_map<key, std::size_t, hash> first;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    if (!pictures[i].readable) continue;
    const auto [it, is_first] = first.try_emplace({list.files[i].size, pictures[i].content}, i);
    if (is_first || !pictures[i].trouble.empty()) continue;
    const listed_file& twin = list.files[it->second];
    pictures[i].trouble = fmt::format("the same bytes as {}{}", list.name_of(twin),
                                      twin.label == list.files[i].label ? "" : ", which is in another class");
  }
}

result<void> add_pictures(inspection& to, const listing& list, const config& settings, unsigned threads,
                          const progress& told) {
  auto looked = look_at_pictures(list, settings, threads, told);
  if (!looked) return tl::unexpected(std::move(looked.error()));
  std::vector<picture_facts>& pictures = *looked;
  add_twins(list, pictures);
  picture_summary& sum = to.pictures.emplace();
  std::vector<std::uint64_t> widths;
  std::vector<std::uint64_t> heights;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const picture_facts& p = pictures[i];
    if (!p.trouble.empty()) to.suspicious.push_back({i, std::string(list.name_of(list.files[i])), p.trouble});
    if (!p.readable) continue;
    ++sum.formats[lower_case(name_of(p.info.format))];
    sum.turned += p.info.orientation != 1 ? 1 : 0;
    const extent seen =
        settings.image.orientation == orientation_rule::exif ? as_seen(p.info) : p.info.stored;
    sum.smaller_than_size +=
        seen.height < settings.image.size[0] || seen.width < settings.image.size[1] ? 1 : 0;
    widths.push_back(seen.width);
    heights.push_back(seen.height);
  }
  sum.width = spread_of(std::move(widths));
  sum.height = spread_of(std::move(heights));
  return {};
}

void add_classes(inspection& to, const listing& list) {
  for (const std::string& name : list.classes) to.classes.push_back({name, 0, 0});
  for (const listed_file& f : list.files) {
    ++to.classes[f.label].samples;
    to.classes[f.label].bytes += f.size;
  }
  for (const class_facts& c : to.classes)
    if (c.samples == 0) to.notices.push_back(fmt::format("class '{}' has no samples", c.name));
}

// ---- records

result<void> add_values(inspection& to, const config& settings, int index_fd, const progress& told) {
  auto dataset = make_dataset(settings, index_fd);
  if (!dataset) return tl::unexpected(std::move(dataset.error()));
  const dataset_description d = (*dataset)->describe();
  to.samples = d.samples;
  to.fingerprint = d.fingerprint;
  const tensor_spec& data = d.tensors.front();
  for (const tensor_spec& t : d.tensors) {
    to.element +=
        fmt::format("{}{} [{}]", d.tensors.size() == 1 ? "" : (to.element.empty() ? "" : ", ") + t.name + " ",
                    name_of(t.type), fmt::join(t.shape, ", "));
  }
  const auto layout = lay_out(d.tensors, 1);
  if (!layout) return tl::unexpected(layout.error());
  std::vector<std::byte> memory(layout->bytes);
  std::vector<std::span<std::byte>> tensors;
  for (const auto& t : layout->tensors) tensors.push_back(std::span(memory).subspan(t.offset, t.row_bytes));
  (*dataset)->setup({0, 1, settings.sampler.seed});

  value_counter counter(data.type);
  const std::uint64_t tries = std::min(d.samples, samples_looked_at);
  for (std::uint64_t i = 0; i < tries; ++i) {
    const std::uint64_t sample = i * d.samples / tries;
    random_source random(settings.sampler.seed, 0, sample);
    std::string reason;
    try {
      (*dataset)->load({sample, 0, 1, random}, sample_slot(tensors));
      reason = counter.take(tensors.front());
    } catch (const std::exception& e) {
      reason = e.what();
    }
    if (!reason.empty()) to.suspicious.push_back({sample, (*dataset)->name_of(sample), reason});
    if (told && i % told_every == 0) told(i, tries);
  }
  if (told) told(tries, tries);
  to.values = counter.summary();
  return {};
}

void add_record_files(inspection& to, const listing& list) {
  const std::uint64_t record = elements_of(list.shape) * size_of(list.element);
  for (const listed_file& f : list.files) {
    const std::uint64_t samples = record == 0 ? 0 : (f.size - std::min(f.size, f.data_at)) / record;
    to.files.push_back({std::string(list.name_of(f)), samples, f.size});
    if (samples == 0) to.notices.push_back(fmt::format("'{}' holds no samples", list.name_of(f)));
  }
}

}  // namespace

result<inspection> look_at(const config& settings, unsigned threads, const progress& told) {
  inspection all;
  all.type = name_of(settings.dataset.type);
  all.path = settings.dataset.path;
  if (settings.dataset.type == dataset_type::custom) {
    if (auto ok = add_custom_samples(all, settings, told); !ok) return tl::unexpected(std::move(ok.error()));
    return all;
  }
  if (settings.dataset.type == dataset_type::synthetic || settings.dataset.type == dataset_type::tokens ||
      has_several_arrays(settings.dataset)) {
    // Injected faults would kill this process.
    config harmless = settings;
    harmless.dataset.faults.clear();
    harmless.dataset.work = harmless.dataset.wait = {};
    if (is_npz(harmless.dataset.path) && !is_url(harmless.dataset.path)) {
      if (auto ok = check_members(harmless.dataset.path); !ok) return tl::unexpected(std::move(ok.error()));
    }
    auto prepared = prepare_dataset(harmless);
    if (!prepared) return tl::unexpected(std::move(prepared.error()));
    all.notices = std::move(prepared->notices);
    if (auto ok = add_values(all, harmless, prepared->index.get(), told); !ok) return tl::unexpected(std::move(ok.error()));
    return all;
  }
  if (settings.dataset.type == dataset_type::tar) {
    if (auto ok = add_tar(all, settings, threads, told); !ok) return tl::unexpected(std::move(ok.error()));
    return all;
  }
  auto list = list_dataset(settings);
  if (!list) return tl::unexpected(std::move(list.error()));
  all.samples = list->samples;
  all.fingerprint = list->fingerprint;
  all.notices = list->notices;
  std::vector<std::uint64_t> sizes;
  for (const listed_file& f : list->files) {
    all.bytes += f.size;
    sizes.push_back(f.size);
  }
  all.file_bytes = spread_of(std::move(sizes));
  if (settings.dataset.type == dataset_type::image_folder) {
    add_classes(all, *list);
    if (auto ok = add_pictures(all, *list, settings, threads, told); !ok) return tl::unexpected(std::move(ok.error()));
    return all;
  }
  add_record_files(all, *list);
  const auto index = seal_index(*list);
  if (!index) return tl::unexpected(index.error());
  if (auto ok = add_values(all, settings, index->get(), told); !ok) return tl::unexpected(std::move(ok.error()));
  return all;
}

}  // namespace penstock::inspected
