// Tokens datasets against a plain model: all files in one array, cut, masked and packed by the rules of docs/formats.md.
#include "runtime/dataset/factory.hpp"
#include "runtime/dataset/tokens/megatron_index.hpp"
#include "tests/random_seed.hpp"
#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/dataset/loading.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string_view>

using namespace penstock;
using testing::load_into;
using testing::sample_memory;
using testing::temporary_folder;

namespace {

using ids = std::vector<std::int64_t>;

template <class T>
std::string bytes_of_numbers(const std::vector<std::int64_t>& numbers) {
  std::string bytes;
  for (const std::int64_t number : numbers) {
    const T one = static_cast<T>(number);
    bytes.append(reinterpret_cast<const char*>(&one), sizeof one);
  }
  return bytes;
}

std::string npy_of(const ids& tokens) {
  std::string dictionary =
      fmt::format("{{'descr': '<i4', 'fortran_order': False, 'shape': ({},), }}", tokens.size());
  dictionary.resize(117, ' ');
  dictionary += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(dictionary.size());
  file += '\0';
  return file + dictionary + bytes_of_numbers<std::int32_t>(tokens);
}

/// A .idx file in the published format: one sequence for each document.
std::string idx_of(const std::vector<std::int64_t>& lengths, std::int64_t code = 8, std::int64_t token_bytes = 2) {
  std::vector<std::int64_t> pointers;
  std::vector<std::int64_t> documents;
  std::int64_t at = 0;
  for (std::size_t i = 0; i <= lengths.size(); ++i) {
    documents.push_back(static_cast<std::int64_t>(i));
    if (i == lengths.size()) break;
    pointers.push_back(at * token_bytes);
    at += lengths[i];
  }
  const auto count = static_cast<std::int64_t>(lengths.size());
  return std::string("MMIDIDX\0\0", 9) + bytes_of_numbers<std::int64_t>({1}) +
         bytes_of_numbers<std::uint8_t>({code}) + bytes_of_numbers<std::int64_t>({count, count + 1}) +
         bytes_of_numbers<std::int32_t>(lengths) + bytes_of_numbers<std::int64_t>(pointers) +
         bytes_of_numbers<std::int64_t>(documents);
}

config settings(const temporary_folder& folder, std::uint32_t length, boundary_rule rule = boundary_rule::ignore) {
  config all;
  all.dataset.type = dataset_type::tokens;
  all.dataset.path = folder.path();
  all.dataset.dtype = dtype::uint16;
  all.dataset.sequence_length = length;
  all.dataset.boundaries = rule;
  return all;
}

std::vector<std::int32_t> numbers(const testing::bytes& raw) {
  std::vector<std::int32_t> all(raw.size() / sizeof(std::int32_t));
  std::memcpy(all.data(), raw.data(), raw.size());
  return all;
}

using row = std::vector<std::vector<std::int32_t>>;

std::vector<row> load_all(const config& all) {
  const auto prepared = prepare_dataset(all);
  REQUIRE(prepared);
  const auto made = make_dataset(all, prepared->index.get());
  REQUIRE(made);
  CHECK((*made)->describe() == prepared->description);
  std::vector<row> rows;
  for (std::uint64_t i = 0; i < prepared->description.samples; ++i) {
    sample_memory memory(prepared->description);
    load_into(**made, i, memory);
    CHECK(memory.guards_intact());
    row& one = rows.emplace_back();
    for (std::size_t t = 0; t < prepared->description.tensors.size(); ++t) one.push_back(numbers(memory.tensor(t)));
  }
  return rows;
}

std::string refusal(const config& all) {
  const auto prepared = prepare_dataset(all);
  return prepared ? std::string() : prepared.error().message;
}

/// Files of random documents of one kind in `folder`; returns all documents in order.
std::vector<ids> write_corpus(const temporary_folder& folder, std::mt19937& random, std::string_view kind) {
  constexpr std::int64_t eos = 9;
  std::vector<ids> documents;
  const unsigned files = 1 + random() % 4;
  for (unsigned f = 0; f < files; ++f) {
    ids tokens;
    std::vector<std::int64_t> lengths;
    for (unsigned d = 0, count = 1 + random() % 30; d < count; ++d) {
      ids document(random() % 40);
      for (std::int64_t& id : document) id = 10 + static_cast<std::int64_t>(random() % 50'000);
      document.push_back(eos);
      tokens.insert(tokens.end(), document.begin(), document.end());
      lengths.push_back(static_cast<std::int64_t>(document.size()));
      documents.push_back(std::move(document));
    }
    if (kind == "npy") {
      folder.write(fmt::format("{}.npy", f), npy_of(tokens));
      continue;
    }
    folder.write(fmt::format("{}.bin", f), bytes_of_numbers<std::uint16_t>(tokens));
    if (kind == "megatron") folder.write(fmt::format("{}.idx", f), idx_of(lengths));
  }
  return documents;
}

void check_cut(const std::vector<row>& rows, const std::vector<ids>& documents, std::size_t length, bool masked) {
  ids all;
  std::vector<bool> begins;
  for (const ids& document : documents) {
    begins.resize(all.size() + document.size());
    begins[all.size()] = true;
    all.insert(all.end(), document.begin(), document.end());
  }
  REQUIRE(rows.size() == (all.size() - 1) / length);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < length; ++j) {
      const std::size_t at = i * length + j;
      REQUIRE(rows[i][0][j] == all[at]);
      REQUIRE(rows[i][1][j] == (masked && begins[at + 1] ? -100 : all[at + 1]));
    }
  }
}

void check_packed(const std::vector<row>& rows, const std::vector<ids>& documents, std::size_t length) {
  // Every pair of neighbours within a document occurs in exactly one place.
  std::map<std::pair<std::int64_t, std::int64_t>, int> pairs;
  for (const ids& document : documents)
    for (std::size_t i = 0; i + 1 < document.size(); ++i) ++pairs[{document[i], document[i + 1]}];
  for (const row& one : rows) {
    REQUIRE(one[2].front() == 0);
    REQUIRE(one[2].back() == static_cast<std::int32_t>(length));
    REQUIRE(std::ranges::is_sorted(one[2]));
    for (std::size_t d = 0; d + 1 < one[2].size(); ++d) {
      const auto begin = static_cast<std::size_t>(one[2][d]);
      const auto end = static_cast<std::size_t>(one[2][d + 1]);
      for (std::size_t at = begin; at < end; ++at) {
        if (one[1][at] == -100) {
          REQUIRE((end == length && one[0][at] == 0));
          continue;
        }
        if (at + 1 < end) REQUIRE(one[0][at + 1] == one[1][at]);
        --pairs[{one[0][at], one[1][at]}];
      }
    }
  }
  for (const auto& [pair, left] : pairs) REQUIRE(left == 0);
}

}  // namespace

TEST_CASE("sequences of random files, lengths and boundaries equal those of one array") {
  std::mt19937 random(static_cast<unsigned>(testing::seed_of_this_run("token files")));
  for (int round = 0; round < 60; ++round) {
    const std::string_view kind = std::array{"flat", "npy", "megatron"}[static_cast<std::size_t>(round) % 3];
    INFO("round " << round << ", " << kind);
    const temporary_folder folder;
    const auto documents = write_corpus(folder, random, kind);
    std::size_t tokens = 0;
    std::size_t pairs = 0;
    for (const ids& document : documents) {
      tokens += document.size();
      pairs += document.size() - 1;
    }
    const auto length = static_cast<std::uint32_t>(1 + random() % 50);
    config all = settings(folder, length);
    if (tokens > length) check_cut(load_all(all), documents, length, false);
    if (kind != "megatron") all.dataset.eos = 9;
    all.dataset.boundaries = boundary_rule::mask;
    if (tokens > length) check_cut(load_all(all), documents, length, true);
    all.dataset.boundaries = boundary_rule::pack;
    if (pairs > 0) check_packed(load_all(all), documents, length);
  }
}

TEST_CASE("tokens at the end that do not fill a sequence are counted in one notice") {
  const temporary_folder folder;
  folder.write("a.bin", bytes_of_numbers<std::uint16_t>(ids(30, 1)));
  const auto prepared = prepare_dataset(settings(folder, 8));
  REQUIRE(prepared);
  CHECK(prepared->description.samples == 3);
  CHECK(prepared->notices ==
        std::vector{fmt::format("the last 5 tokens of '{}' do not fill a sequence of 8 and are left out",
                                folder.path())});
}

TEST_CASE("packed documents go to the sequence with the least room that is enough") {
  const temporary_folder folder;
  // 6, 5, 3, 2 and 10 tokens with targets, in sequences of 8: 8 of the 10 are a sequence of their own.
  folder.write("a.bin", bytes_of_numbers<std::uint16_t>(ids(31, 1)));
  folder.write("a.idx", idx_of({7, 6, 4, 3, 11}));
  const auto rows = load_all(settings(folder, 8, boundary_rule::pack));
  REQUIRE(rows.size() == 4);
  CHECK(rows[0][2] == std::vector<std::int32_t>{0, 6, 8});
  CHECK(rows[1][2] == std::vector<std::int32_t>{0, 5, 8});
  CHECK(rows[2][2] == std::vector<std::int32_t>{0, 2, 8});
  CHECK(rows[3][2] == std::vector<std::int32_t>{0, 8, 8});
}

TEST_CASE("ids beyond the vocabulary fail their sequence by name, and large vocabularies use int64") {
  const temporary_folder folder;
  folder.write("a.bin", bytes_of_numbers<std::uint32_t>({1, 2, 3, 4'000'000'000, 5, 6, 7}));
  config all = settings(folder, 2);
  all.dataset.dtype = dtype::uint32;
  const auto prepared = prepare_dataset(all);
  REQUIRE(prepared);
  const auto made = make_dataset(all, prepared->index.get());
  REQUIRE(made);
  CHECK(testing::load_error(**made, 0).empty());
  CHECK(testing::load_error(**made, 1) ==
        "token 3 of 'a.bin' has the id 4000000000: set [dataset] vocab for ids beyond 2147483647");
  all.dataset.vocab = 7;
  const auto bounded = make_dataset(all, prepared->index.get());
  CHECK(testing::load_error(**bounded, 1) == "token 3 of 'a.bin' has the id 4000000000: ids are below vocab = 7");
  all.dataset.vocab = 4'100'000'000;
  const auto as_int64 = prepare_dataset(all);
  REQUIRE(as_int64);
  CHECK(as_int64->description.fingerprint != prepared->description.fingerprint);
  const auto wide = make_dataset(all, as_int64->index.get());
  CHECK((*wide)->describe().tensors[0].type == dtype::int64);
  CHECK(testing::load_error(**wide, 1).empty());
}

TEST_CASE("a token file that shrinks fails its sequences by name") {
  const temporary_folder folder;
  folder.write("a.bin", bytes_of_numbers<std::uint16_t>(ids(100, 1)));
  const config all = settings(folder, 10);
  const auto prepared = prepare_dataset(all);
  REQUIRE(prepared);
  const auto made = make_dataset(all, prepared->index.get());
  REQUIRE(made);
  CHECK(testing::load_error(**made, 8).empty());
  REQUIRE(::truncate(folder.path("a.bin").c_str(), 100) == 0);
  CHECK(testing::load_error(**made, 8) == "'a.bin' ends at byte 160, but was 200 bytes long when it was indexed");
  CHECK(testing::load_error(**make_dataset(all, prepared->index.get()), 0) ==
        "'a.bin' changed since it was indexed (200 bytes then, 100 now): start the session again when it is complete");
}

TEST_CASE("files without tokens are refused with the reason") {
  const temporary_folder folder;
  config all = settings(folder, 4);
  CHECK(refusal(all) == fmt::format("no token files (*.bin, *.npy) in '{}'", folder.path()));
  const auto with = [&](std::string_view name, const std::string& contents) {
    folder.write(name, contents);
    all.dataset.path = folder.path(name);
    const std::string quoted = fmt::format("'{}' ", all.dataset.path);
    const std::string why = refusal(all);
    return why.starts_with(quoted) ? why.substr(quoted.size()) : why;
  };
  CHECK(with("a.bin", "") == "holds no tokens");
  CHECK(with("a.bin", "123") == "has 3 bytes, which is not a multiple of the 2 of a uint16");
  CHECK(with("a.bin", "12345678") == "holds 4 tokens, but a sequence of sequence_length = 4 needs 5");
  all.dataset.boundaries = boundary_rule::mask;
  CHECK(with("a.bin", "1234567890") ==
        "boundaries = \"mask\" needs to know where documents end, and 'a.bin' has no index: set [dataset] eos, the id of "
        "the token that ends a document");
  all.dataset.eos = 65'536;
  CHECK(with("a.bin", "1234567890") == "no document would end: [dataset] eos = 65536 does not fit in the uint16 ids of 'a.bin'");
  all.dataset.boundaries = boundary_rule::pack;
  all.dataset.eos = 0x3231;  // "12"
  CHECK(with("a.bin", "1212") == fmt::format("no document in '{}' has more than one token: is eos = 12849 right?", all.dataset.path));
  all.dataset.boundaries = boundary_rule::ignore;
  all.dataset.dtype = dtype::uint8;
  CHECK(with("a.bin", "1234567890") ==
        "does not say what type its tokens have: set [dataset] dtype, \"uint16\" or \"uint32\"");
  CHECK(with("b.npy", "nothing") == "is not a .npy file: its first bytes are not \\x93NUMPY");
}

TEST_CASE("an index with wrong numbers is refused, and the error gives them") {
  const auto open = [](std::string index, std::uint64_t data_bytes) {
    const auto read = [&index](std::uint64_t at, std::span<std::byte> into) -> result<void> {
      if (at + into.size() > index.size()) return refuse(errc::io, "ends too early");
      std::memcpy(into.data(), index.data() + at, into.size());
      return {};
    };
    const auto opened = megatron_index::open(read, index.size(), data_bytes);
    if (!opened) return opened.error().message;
    std::vector<std::uint32_t> lengths;
    const auto all = opened->all_lengths(lengths);
    return all ? std::string() : all.error().message;
  };
  const std::string good = idx_of({3, 4});
  CHECK(open(good, 14).empty());
  CHECK(open("MMIDIDX", 14) == "has 7 bytes, but the header of an index has 34");
  CHECK(open("X" + good.substr(1), 14) == "is not an index of tokens: its first bytes are not MMIDIDX");
  std::string other = good;
  other[9] = 2;
  CHECK(open(other, 14) == "is an index of version 2: only version 1 is read");
  CHECK(open(idx_of({3, 4}, 7), 14) == "says that tokens have the type 7, which is not a whole-number type");
  CHECK(open(good + "x", 14) ==
        "has 83 bytes, which is not what its header promises: 2 sequences, 3 documents");
  CHECK(open(good, 12) == "says that its last sequence has 4 tokens from byte 6 on, but its .bin ends at byte 12");
  other = good;
  other[34] = 9;
  CHECK(open(other, 14) == "says that sequence 0 has 9 tokens from token 0 on, but it must begin at token 0, and its .bin ends at token 7");
}
