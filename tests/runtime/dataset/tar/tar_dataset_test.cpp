#include "runtime/dataset/tar/tar_dataset.hpp"

#include "runtime/dataset/factory.hpp"
#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/dataset/loading.hpp"
#include "tests/runtime/dataset/tar/archives.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <filesystem>

using namespace penstock;
using testing::append_typed;
using testing::archive_of;
using testing::load_into;
using testing::make_raster;
using testing::sample_memory;
using testing::seekable;
using testing::temporary_folder;

namespace {

std::string as_text(const testing::bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string picture(extent size, std::uint64_t seed = 1) {
  return as_text(testing::encode_jpeg(make_raster(size, 3, seed)));
}

config settings(const temporary_folder& folder, string_map members = {}) {
  config all;
  all.dataset.type = dataset_type::tar;
  all.dataset.path = folder.path();
  all.dataset.members = std::move(members);
  all.image.size = {32, 48};
  return all;
}

std::unique_ptr<Dataset> open(const config& all) {
  const auto prepared = prepare_dataset(all);
  if (!prepared) FAIL(prepared.error().message);
  auto made = make_dataset(all, prepared->index.get());
  REQUIRE(made);
  CHECK((*made)->describe() == prepared->description);
  return std::move(*made);
}

std::string refusal(const config& all) {
  const auto prepared = prepare_dataset(all);
  return prepared ? "" : prepared.error().message;
}

/// One sample, with the lengths that it set.
struct loaded_sample {
  sample_memory memory;
  std::vector<sample_length> lengths;

  explicit loaded_sample(Dataset& dataset, std::uint64_t index) : memory(dataset.describe()) {
    const dataset_description described = dataset.describe();
    std::vector<std::span<std::byte>> spans;
    for (std::size_t i = 0; i < described.tensors.size(); ++i) {
      const tensor_spec& spec = described.tensors[i];
      lengths.push_back({0, spec.length == length_rule::exact ? 0 : spec.shape.front()});
      spans.push_back(memory.slot().bytes(i));
    }
    random_source random(1, 0, index);
    dataset.load({index, 0, 1, random}, sample_slot(spans, lengths, described.tensors));
  }
  template <class T>
  [[nodiscard]] T number(std::size_t tensor) const {
    T value{};
    std::memcpy(&value, memory.tensor(tensor).data(), sizeof value);
    return value;
  }
  [[nodiscard]] std::string text(std::size_t tensor) const {
    return as_text(memory.tensor(tensor)).substr(0, lengths[tensor].entries);
  }
};

std::string failure_of(Dataset& dataset, std::uint64_t index) {
  try {
    const loaded_sample sample(dataset, index);
    return {};
  } catch (const error& e) {
    return e.what();
  }
}

std::string npy(std::string_view dictionary, std::string_view data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(dictionary.size());
  file += '\0';
  return file + std::string(dictionary) + std::string(data);
}

}  // namespace

TEST_CASE("a tar dataset gives the same tensors as an image folder of the same pictures, labels and draws") {
  const temporary_folder folder;
  const std::string one = picture({90, 70});
  const std::string two = as_text(testing::encode_png(make_raster({64, 80}, 3, 2)));
  folder.write("photos/a/1.jpg", one);
  folder.write("photos/b/2.png", two);
  folder.write("shards/x.tar",
               archive_of({{"a/1.jpg", one}, {"a/1.cls", "0"}, {"b/2.png", two}, {"b/2.cls", "1\n"}}));
  config all = settings(folder);
  all.dataset.path = folder.path("shards");
  const auto shards = open(all);
  all.dataset.type = dataset_type::image_folder;
  all.dataset.path = folder.path("photos");
  const auto photos = open(all);
  CHECK(shards->describe().tensors == photos->describe().tensors);
  CHECK(shards->describe().samples == 2);
  for (const std::uint64_t sample : {0, 1}) {
    sample_memory expected(photos->describe());
    load_into(*photos, sample, expected);
    const loaded_sample found(*shards, sample);
    CHECK(found.memory.guards_intact());
    for (std::size_t i = 0; i < 4; ++i) CHECK((found.memory.tensor(i) == expected.tensor(i)));
  }
  CHECK(shards->name_of(1) == "x.tar:b/2");
}

TEST_CASE("texts, numbers, arrays and bytes become tensors, in the order of their names") {
  const temporary_folder folder;
  const std::string array = npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1), }", "abcd");
  folder.write("x.tar", archive_of({{"1.json", "{}"},
                                    {"1.TXT", "a caption"},
                                    {"1.index", " +12 "},
                                    {"1.emb.npy", array},
                                    {"2.json", ""},
                                    {"2.txt", "b"},
                                    {"2.index", "-3"},
                                    {"2.emb.npy", array}}));
  const auto dataset = open(settings(
      folder, {{"caption", "txt"}, {"embedding", "emb.npy"}, {"meta", ".json"}, {"number", "index;id"}}));
  CHECK(
      dataset->describe().tensors ==
      std::vector<tensor_spec>{{"caption", dtype::uint8, {9}, tensor_role::data, length_rule::batch_maximum},
                               {"embedding", dtype::int16, {2, 1}},
                               {"meta", dtype::uint8, {2}, tensor_role::data, length_rule::batch_maximum},
                               {"number", dtype::int64, {}}});
  const loaded_sample first(*dataset, 0);
  CHECK(first.text(0) == "a caption");
  CHECK(as_text(first.memory.tensor(1)) == "abcd");
  CHECK(first.text(2) == "{}");
  CHECK(first.number<std::int64_t>(3) == 12);
  const loaded_sample second(*dataset, 1);
  CHECK(second.text(0) == "b");
  CHECK(second.text(2).empty());
  CHECK(second.number<std::int64_t>(3) == -3);
}

TEST_CASE("of several alternatives, the first that a sample has is used") {
  const temporary_folder folder;
  folder.write("x.tar", archive_of({{"1.b", "bee"}, {"1.a", "ay"}, {"2.b", "bee"}}));
  const auto dataset = open(settings(folder, {{"x", "a;b"}}));
  CHECK(loaded_sample(*dataset, 0).text(0) == "ay");
  CHECK(loaded_sample(*dataset, 1).text(0) == "bee");
}

TEST_CASE("pictures of equal size in one sample get the same box") {
  const temporary_folder folder;
  const std::string one = picture({90, 70});
  folder.write("x.tar", archive_of({{"1.jpg", one}, {"1.mask.jpg", one}}));
  const auto dataset = open(settings(folder, {{"image", "jpg"}, {"mask", "mask.jpg"}}));
  REQUIRE(dataset->describe().tensors.size() == 5);
  CHECK(dataset->describe().tensors[3].name == "mask_crop");
  const loaded_sample sample(*dataset, 0);
  CHECK((sample.memory.tensor(0) == sample.memory.tensor(1)));
  CHECK((sample.memory.tensor(2) == sample.memory.tensor(3)));
}

TEST_CASE("a sample with missing, duplicate, linked, sparse or malformed members fails and names them") {
  const temporary_folder folder;
  const std::string jpg = picture({60, 50});
  std::string archive;
  const auto add = [&](std::string_view name, std::string_view contents) {
    append_tar_member(archive, name, contents);
  };
  add("0.jpg", jpg), add("0.cls", "3");
  add("1.jpg", jpg), add("1.txt", "no label");
  add("2.jpg", jpg), add("2.cls", "3"), add("2.cls", "4");
  append_typed(archive, '1', "3.jpg"), add("3.cls", "3");
  append_typed(archive, 'S', "4.jpg", jpg), add("4.cls", "3");
  add("5.jpg", jpg), add("5.cls", "three");
  add("6.webp", std::string("RIFF\x04\x01\0\0WEBPVP8 ", 16)), add("6.cls", "3");
  add("7.jpg", "nonsense"), add("7.cls", "3");
  add("8.jpg", jpg), add("8.cls", "9223372036854775808");
  append_tar_end(archive);
  folder.write("x.tar", archive);
  const auto dataset = open(settings(folder));
  CHECK(failure_of(*dataset, 0).empty());
  CHECK(failure_of(*dataset, 1) == "it has no member .cls: it has .jpg, .txt");
  CHECK(failure_of(*dataset, 2).starts_with("it has two members .cls, at offsets "));
  CHECK(failure_of(*dataset, 3).find(" of its shard, is a link, which is not followed") != std::string::npos);
  CHECK(failure_of(*dataset, 4).find(" of its shard, is a sparse file, which is not read") !=
        std::string::npos);
  CHECK(failure_of(*dataset, 5) == "its member .cls is 'three', not a whole number");
  CHECK(failure_of(*dataset, 6) == "its member .webp cannot be used: truncated WebP: 16 of its 268 bytes");
  CHECK(failure_of(*dataset, 7).starts_with("its member .jpg cannot be used: not a JPEG: starts with 6e 6f"));
  CHECK(failure_of(*dataset, 8) == "its member .cls is '9223372036854775808', which does not fit in 64 bits");
}

TEST_CASE("arrays of another shape or type than in the first sample fail") {
  const temporary_folder folder;
  const std::string good = npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }", "abcd");
  folder.write(
      "x.tar",
      archive_of({{"0.txt", ""},
                  {"1.npy", good},
                  {"2.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (1,), }", "ab")},
                  {"3.npy", good.substr(0, good.size() - 1)},
                  {"4.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "ab")}}));
  const auto dataset = open(settings(folder, {{"x", "npy"}}));
  CHECK(failure_of(*dataset, 0) == "it has no member .npy: it has .txt");
  CHECK(failure_of(*dataset, 1).empty());
  CHECK(failure_of(*dataset, 2) == "its member .npy is int16 [1], but that of the first sample is int16 [2]");
  CHECK(failure_of(*dataset, 3) == "its member .npy holds 3 bytes of data, but its header promises 4");
  CHECK(failure_of(*dataset, 4).starts_with("its member .npy has elements of type '|O'"));
}

TEST_CASE("shards without a requested member are refused, and the error names what they have") {
  const temporary_folder folder;
  folder.write("x.tar", archive_of({{"1.jpg", "x"}, {"1.txt", "x"}, {"2.jpg", "x"}}));
  CHECK(refusal(settings(folder)) ==
        "no sample has a member .cls for the tensor 'label': the shards have .jpg, .txt; [dataset.members] "
        "says which "
        "members become tensors");
  CHECK(refusal(settings(folder, {{"image", "jpg;cls"}})).find("mixes members of different kinds") !=
        std::string::npos);
  folder.write("x.tar", archive_of({}));
  CHECK(refusal(settings(folder)) == fmt::format("the shards of '{}' hold no samples", folder.path()));
}

TEST_CASE("a shard that changes during use fails its own samples and no others") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"1.txt", "one"}}));
  folder.write("b.tar", archive_of({{"2.txt", "two"}}));
  const auto dataset = open(settings(folder, {{"x", "txt"}}));
  CHECK(failure_of(*dataset, 0).empty());
  folder.write("a.tar", archive_of({{"1.txt", "one"}, {"3.txt", "three"}}));
  CHECK(failure_of(*dataset, 0) ==
        "its shard changed since it was indexed (2048 bytes then, 3072 now): start the session again when it "
        "is complete");
  CHECK(failure_of(*dataset, 1).empty());
  std::filesystem::remove(folder.path("b.tar"));
  std::filesystem::remove(folder.path("a.tar"));
  CHECK(failure_of(*dataset, 0) == "its shard cannot be opened: No such file or directory");
  CHECK(failure_of(*dataset, 1).empty());  // still open
}

TEST_CASE("members that are far from each other are read like neighbours") {
  const temporary_folder folder;
  folder.write("a.tar",
               archive_of({{"1.txt", "one"}, {"2.txt", std::string(300'000, 'x')}, {"1.json", "{}"}}));
  const auto dataset = open(settings(folder, {{"a", "txt"}, {"b", "json;txt"}}));
  const loaded_sample sample(*dataset, 0);
  CHECK(sample.text(0) == "one");
  CHECK(sample.text(1) == "{}");
}

TEST_CASE("other members or another order of shards make a different dataset") {
  const temporary_folder folder;
  folder.write("a.tar", archive_of({{"1.txt", "one"}, {"1.json", ""}}));
  folder.write("b.tar", archive_of({{"2.txt", "two"}, {"2.json", ""}}));
  const auto fingerprint = [&](const std::string& path, const string_map& members) {
    config all = settings(folder, members);
    all.dataset.path = folder.path(path);
    return prepare_dataset(all)->description.fingerprint;
  };
  const std::string one = fingerprint("{a,b}.tar", {{"x", "txt"}});
  CHECK(one == fingerprint("*.tar", {{"x", "txt"}}));
  CHECK(one != fingerprint("{b,a}.tar", {{"x", "txt"}}));
  CHECK(one != fingerprint("{a,b}.tar", {{"x", "json"}}));
  CHECK(one != fingerprint("a.tar", {{"x", "txt"}}));
}

TEST_CASE("shards without an end marker, or with an archive after it, are named in notices") {
  const temporary_folder folder;
  std::string archive;
  append_tar_member(archive, "1.txt", "one");
  folder.write("a.tar", archive);
  folder.write("b.tar", archive_of({{"2.txt", "two"}}) + std::string(100'000, 'x'));
  folder.write("c.tar", archive_of({{"3.txt", "three"}}) + archive_of({{"4.txt", "four"}}));
  folder.write("d.tar", archive_of({{"5.txt", "five"}}) + std::string(20'000, '\0'));
  const auto prepared = prepare_dataset(settings(folder, {{"x", "txt"}}));
  REQUIRE(prepared);
  CHECK(prepared->notices ==
        std::vector<std::string>{
            "the shard 'a.tar' has no end marker: it may have been cut short between two members",
            "the shard 'b.tar' and 1 other: each has data after its end marker, which is not read: was an archive appended to "
            "it?"});
}

TEST_CASE("a compressed shard gives the same samples as the plain one, wherever its frames begin") {
  const temporary_folder folder;
  testing::named_contents members;
  for (int i = 0; i < 40; ++i) {
    members.emplace_back(fmt::format("{}/{:02}.txt", std::string(static_cast<std::size_t>(i), 'f'), i), std::string(static_cast<std::size_t>(300 + 97 * i), static_cast<char>('a' + i % 26)));
    members.emplace_back(fmt::format("{}/{:02}.cls", std::string(static_cast<std::size_t>(i), 'f'), i), fmt::format("{}", i));
    if (i % 3 == 0) members.emplace_back(fmt::format("{}/{:02}.npy", std::string(static_cast<std::size_t>(i), 'f'), i), npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", "abc"));
  }
  const std::string archive = archive_of(members);
  folder.write("plain/x.tar", archive);
  config all = settings(folder, {{"text", "txt"}, {"label", "cls"}});
  all.dataset.path = folder.path("plain");
  const auto plain = open(all);
  for (const std::size_t frame_size : {std::size_t{137}, std::size_t{512}, std::size_t{4096}, std::size_t{1'000'000}}) {
    const std::string name = fmt::format("frames-{}", frame_size);
    folder.write(name + "/x.tar.zst", seekable(archive, frame_size));
    all.dataset.path = folder.path(name);
    const auto compressed = open(all);
    REQUIRE(compressed->describe().samples == plain->describe().samples);
    for (std::uint64_t i = 0; i < 40; ++i) {
      const std::uint64_t sample = i * 17 % 40;
      const loaded_sample one(*plain, sample);
      const loaded_sample other(*compressed, sample);
      CHECK(one.text(1) == other.text(1));
      CHECK(one.number<std::int64_t>(0) == other.number<std::int64_t>(0));
    }
    CHECK(compressed->name_of(3) == plain->name_of(3).insert(5, ".zst"));
  }
}

TEST_CASE("frames damaged after indexing fail their samples, and no others") {
  const temporary_folder folder;
  std::string archive = archive_of({{"1.txt", std::string(3000, 'a')}, {"2.txt", std::string(3000, 'b')}});
  archive += std::string(8192 - archive.size() % 4096, '\0');
  const std::string file = seekable(archive, 512);
  folder.write("x.tar.zst", file);
  const config all = settings(folder, {{"text", "txt"}});
  const auto prepared = prepare_dataset(all);
  REQUIRE(prepared);
  const auto modified = std::filesystem::last_write_time(folder.path("x.tar.zst"));
  std::string damaged = file;
  std::size_t third = 0;  // it contains data of the first sample
  for (int i = 0; i < 2; ++i) third = file.find("\x28\xb5\x2f\xfd", third + 1);
  damaged[third + 5] ^= 1;
  folder.write("x.tar.zst", damaged);
  std::filesystem::last_write_time(folder.path("x.tar.zst"), modified);
  const auto dataset = make_dataset(all, prepared->index.get());
  REQUIRE(dataset);
  const std::string why = failure_of(**dataset, 0);
  INFO(why);
  CHECK(why.starts_with("its shard has a frame at byte "));
  CHECK(loaded_sample(**dataset, 1).text(0) == std::string(3000, 'b'));
  folder.write("x.tar.zst", file + "more");
  CHECK(failure_of(**dataset, 1).starts_with("its shard changed since it was indexed"));
}

TEST_CASE("compressed shards that are empty, truncated or without a table are refused and named") {
  const temporary_folder folder;
  const std::string archive = archive_of({{"1.txt", std::string(3000, 'a')}});
  const std::string file = seekable(archive, 512);
  const auto refused = [&](const std::string& contents) {
    folder.write("x.tar.zst", contents);
    return refusal(settings(folder, {{"text", "txt"}}));
  };
  CHECK(refused(archive).starts_with("the shard 'x.tar.zst' has no seek table at its end, so its members could not be read one by one: `zstd -d` it, and compress the .tar with `penstock pack"));
  CHECK(refused(file.substr(0, file.size() / 2)).starts_with("the shard 'x.tar.zst' has no seek table"));
  CHECK(refused(file.substr(10)).starts_with("the shard 'x.tar.zst' has a seek table whose frame at byte"));
  CHECK(refused("").starts_with("the shard 'x.tar.zst' has no seek table"));
  CHECK(refused(seekable("", 512)) == "the shard 'x.tar.zst' is empty: not a tar archive");
  CHECK(refused(seekable(archive.substr(0, 2000), 512)).starts_with("the shard 'x.tar.zst' is damaged at offset 0, member '1.txt'"));
  std::string damaged = file;
  damaged[6] ^= 1;
  CHECK(refused(damaged).starts_with("the shard 'x.tar.zst' has a frame at byte 0 "));
  std::filesystem::remove(folder.path("x.tar.zst"));
  folder.write("x.tar", file);
  CHECK(refusal(settings(folder, {{"text", "txt"}})) ==
        "the shard 'x.tar' is compressed with zstd: such shards are read if they are named .tar.zst and have a seek table");
}
