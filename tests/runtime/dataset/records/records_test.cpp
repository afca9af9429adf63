#include "runtime/dataset/records/records.hpp"

#include "runtime/dataset/listing/listing.hpp"
#include "runtime/dataset/records/npy_header.hpp"
#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/dataset/loading.hpp"

#include <penstock/error.hpp>
#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <unistd.h>

#include <cstring>

using namespace penstock;
using testing::as_bytes;
using testing::bytes;
using testing::load_one;
using testing::temporary_folder;

namespace {

/// A .npy file as numpy writes it, with any dictionary and any data.
std::string npy(std::string dictionary, std::string_view data, unsigned version = 1) {
  const std::size_t prefix = version == 1 ? 10 : 12;
  while ((prefix + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (unsigned i = 0; i < (version == 1 ? 2U : 4U); ++i)
    file += static_cast<char>(dictionary.size() >> (8 * i) & 0xffU);
  return file + dictionary + std::string(data);
}

std::string dictionary(std::string_view descr, std::string_view shape, std::string_view fortran = "False") {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(fortran) +
         ", 'shape': " + std::string(shape) + ", }";
}

std::string refusal(const std::string& file) {
  const auto header = parse_npy_header(std::as_bytes(std::span(file)), file.size());
  return header ? std::string() : header.error().message;
}

record_dataset open(const temporary_folder& folder, const listing& list) {
  return record_dataset(std::move(*index_view::map(seal_index(list)->get())), folder.path());
}

}  // namespace

TEST_CASE("npy headers of versions 1 to 3 are read") {
  for (unsigned version = 1; version <= 3; ++version) {
    const std::string file = npy(dictionary("<f4", "(3, 2, 5)"), std::string(120, 'x'), version);
    const auto header = parse_npy_header(std::as_bytes(std::span(file)), file.size());
    REQUIRE(header);
    CHECK(header->element == dtype::float32);
    CHECK(header->shape == std::vector<std::uint64_t>{3, 2, 5});
    CHECK(header->data_at == file.size() - 120);
    CHECK(header->record_bytes() == 40);
  }
}

TEST_CASE("npy headers are read in the spellings of old and new writers") {
  CHECK(refusal(npy("{'shape': (3,), 'fortran_order': False, 'descr': '|u1'}", "abc")).empty());
  CHECK(refusal(npy("{\"descr\": \"|u1\", \"fortran_order\": False, \"shape\": (3L,), }", "abc")).empty());
  CHECK(refusal(npy(dictionary("|b1", "(3, 1)"), "abc")).empty());
  CHECK(refusal(npy(dictionary("<i8", "(0, 4)"), "")).empty());
}

TEST_CASE("arrays that are not rows of plain samples are refused with the reason") {
  CHECK(refusal("no npy at all") == "is not a .npy file: its first bytes are not \\x93NUMPY");
  CHECK(refusal(npy(dictionary("<f4", "(1,)"), "1234", 4)) == "is a .npy file of the unknown version 4");
  CHECK(refusal(npy(dictionary("<f4", "(1, 1)", "True"), "1234")) ==
        "is in Fortran order: its samples are not contiguous; save np.ascontiguousarray(array)");
  CHECK(refusal(npy(dictionary(">f4", "(1,)"), "1234")) ==
        "has big-endian elements ('>f4'): convert it with array.astype('<f4')");
  CHECK(refusal(npy(dictionary("|O", "(1,)"), "1234")) ==
        "has elements of type '|O', which is not a plain number");
  CHECK(refusal(npy(dictionary("<c8", "(1,)"), "12345678")) ==
        "has elements of type '<c8', which is not a plain number");
  CHECK(refusal(npy(dictionary("<U4", "(1,)"), "1234")) ==
        "has elements of type '<U4', which is not a plain number");
  CHECK(refusal(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234")) ==
        "has records of several fields as elements: save each field as a separate array");
  CHECK(refusal(npy(dictionary("<f4", "()"), "1234")) ==
        "holds a single number: there is no first axis to count samples");
  CHECK(refusal(npy(dictionary("<f4", "(2, 0)"), "")) == "holds samples with a dimension of 0");
  CHECK(refusal(npy(dictionary("<f4", "(1, 4294967296)"), "1234")) == "holds samples larger than 1 TiB");
  CHECK(refusal(npy(dictionary("<f4", "(1, 4294967295, 4294967295, 4294967295)"), "1234")) ==
        "holds samples larger than 1 TiB");
}

TEST_CASE("npy headers with a wrong size are refused, and the error gives both sizes") {
  CHECK(refusal(npy(dictionary("<f4", "(3,)"), "12345678")) ==
        "holds 8 bytes of data, but its header promises 3 samples of 4 bytes");
  CHECK(refusal(npy(dictionary("<f4", "(2,)"), "123456789")) ==
        "holds 9 bytes of data, but its header promises 2 samples of 4 bytes");
  CHECK(refusal(npy(dictionary("<f4", "(18446744073709551615,)"), "1234")) ==
        "holds 4 bytes of data, but its header promises 18446744073709551615 samples of 4 bytes");
}

TEST_CASE("npy headers of any other form are refused") {
  const std::string strange = "has a .npy header in a form that numpy does not write";
  for (const char* const text :
       {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,-1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x",
        "{'descr': '<\\x66 4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}"}) {
    CHECK(refusal(npy(text, "1234")) == strange);
  }
  CHECK(refusal(npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "1234")) ==
        "has a .npy header with an unknown or repeated key 'descr'");
  CHECK(refusal(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "1234")) ==
        "has a .npy header with an unknown or repeated key 'x'");
  std::string huge = npy(dictionary("<f4", "(1,)"), "1234", 2);
  huge[10] = '\x7f';
  CHECK(refusal(huge) == "has a .npy header of 7.94 MiB, which is too long");
}

TEST_CASE("a truncated or garbled npy header is read or refused, without reading outside it") {
  const std::string good = npy(dictionary("<f4", "(3, 2)"), std::string(24, 'x'));
  for (std::size_t size = 0; size < good.size(); ++size) REQUIRE_FALSE(refusal(good.substr(0, size)).empty());
  random_source random(1, 0, 0);
  for (int i = 0; i < 20000; ++i) {
    std::string garbled = good;
    for (int flips = 0; flips < 3; ++flips) garbled[random.below(70)] = static_cast<char>(random() & 0xffU);
    (void)refusal(garbled);
  }
}

TEST_CASE("the npy files of a folder are one dataset, in byte order of their names") {
  const temporary_folder folder;
  folder.write("b.npy", npy(dictionary("<u2", "(2, 2)"), "ijklmnop"));
  folder.write("a.NPY", npy(dictionary("<u2", "(1, 2)"), "abcd", 2));
  folder.write("c.npy", npy(dictionary("<u2", "(0, 2)"), ""));
  folder.write("d.npy", npy(dictionary("<u2", "(1, 2)"), "wxyz"));
  folder.write("readme.txt", "ignored");
  const auto list = list_npy(folder.path());
  REQUIRE(list);
  CHECK(list->samples == 4);
  auto dataset = open(folder, *list);
  const dataset_description described = dataset.describe();
  CHECK(described.type == "npy");
  CHECK(described.samples == 4);
  CHECK(described.tensors == std::vector<tensor_spec>{{"data", dtype::uint16, {2}, tensor_role::data}});
  CHECK(load_one(dataset, 0) == as_bytes("abcd"));
  CHECK(load_one(dataset, 1) == as_bytes("ijkl"));
  CHECK(load_one(dataset, 2) == as_bytes("mnop"));
  CHECK(load_one(dataset, 3) == as_bytes("wxyz"));
  CHECK(dataset.name_of(2) == "b.npy[1]");
}

TEST_CASE("a single npy file is a dataset, even if its samples are scalars") {
  const temporary_folder folder;
  folder.write("x.npy", npy(dictionary("<i8", "(3,)"), "aaaaaaaabbbbbbbbcccccccc"));
  const auto list = list_npy(folder.path("x.npy"));
  REQUIRE(list);
  record_dataset dataset(std::move(*index_view::map(seal_index(*list)->get())), folder.path("x.npy"));
  CHECK(dataset.describe().tensors.front().shape.empty());
  CHECK(load_one(dataset, 1) == as_bytes("bbbbbbbb"));
  CHECK(dataset.name_of(1) == "x.npy[1]");
}

TEST_CASE("npy files that do not fit together are refused and named") {
  const temporary_folder folder;
  folder.write("a.npy", npy(dictionary("<u2", "(1, 2)"), "abcd"));
  folder.write("b.npy", npy(dictionary("<u2", "(1, 3)"), "abcdef"));
  const auto list = list_npy(folder.path());
  REQUIRE_FALSE(list);
  CHECK(list.error().message ==
        fmt::format("'{}' holds samples of uint16 [3], but the files before it hold samples of uint16 [2]",
                    folder.path("b.npy")));
  folder.write("b.npy", "nonsense");
  CHECK(list_npy(folder.path()).error().message ==
        fmt::format("'{}' is not a .npy file: its first bytes are not \\x93NUMPY", folder.path("b.npy")));
}

TEST_CASE("raw files are records stored back to back") {
  const temporary_folder folder;
  folder.write("0", "aabbcc");
  folder.write("1", "dd");
  const auto list = list_raw(folder.path(), {2}, dtype::uint8);
  REQUIRE(list);
  auto dataset = open(folder, *list);
  CHECK(dataset.describe().samples == 4);
  CHECK(load_one(dataset, 2) == as_bytes("cc"));
  CHECK(load_one(dataset, 3) == as_bytes("dd"));
  CHECK(dataset.name_of(3) == "1[0]");
}

TEST_CASE("raw files that cannot be divided into samples are refused") {
  const temporary_folder folder;
  folder.write("0", "aabbc");
  const auto message = [&](const std::vector<std::uint32_t>& shape) {
    const auto list = list_raw(folder.path("0"), shape, dtype::uint8);
    return list ? std::string() : list.error().message;
  };
  CHECK(message({2}) ==
        fmt::format("'{}' holds 5 bytes, which is not a multiple of a sample's 2", folder.path("0")));
  CHECK(message({}) == "a raw dataset needs 'shape' and 'dtype' in [dataset]: those of one sample");
  CHECK(message({2, 0}) == "a sample with a dimension of 0 has no elements");
  CHECK(message({5}).empty());
  folder.write("0", "");
  CHECK(message({5}) == fmt::format("'{}' holds no samples", folder.path("0")));
  CHECK(list_raw(folder.path("gone"), {1}, dtype::uint8).error().message ==
        fmt::format("the dataset '{}' does not exist", folder.path("gone")));
}

TEST_CASE("a file truncated after the listing fails only the samples after the cut") {
  const temporary_folder folder;
  folder.write("0", "aabbccdd");
  auto dataset = open(folder, *list_raw(folder.path(), {2}, dtype::uint8));
  REQUIRE(::truncate(folder.path("0").c_str(), 5) == 0);
  CHECK(load_one(dataset, 1) == as_bytes("bb"));
  CHECK(testing::load_error(dataset, 2) ==
        "ends at byte 5, but was 8 bytes long when it was indexed");
  CHECK(testing::load_error(dataset, 3) ==
        "ends at byte 6, but was 8 bytes long when it was indexed");
}

TEST_CASE("a temporary storage failure is a transient error, and loading is retried") {
  // Reading a process's memory at address 0 fails with EIO.
  listing list;
  list.type = dataset_type::raw;
  list.shape = {8};
  list.pool = "mem";
  list.files = {{0, 3, 0, 8, 0}};
  list.samples = 1;
  list.fingerprint = fingerprint_of(list);
  record_dataset dataset(std::move(*index_view::map(seal_index(list)->get())), "/proc/self");
  try {
    (void)load_one(dataset, 0);
    FAIL("it was read");
  } catch (const transient_error& e) {
    CHECK(std::string(e.what()) == "cannot be read: Input/output error");
  }
}

TEST_CASE("files beyond the limit of open files are read correctly") {
  const temporary_folder folder;
  for (int i = 0; i < 150; ++i)
    folder.write(fmt::format("{}", 1000 + i), std::string(2, static_cast<char>(i)));
  auto dataset = open(folder, *list_raw(folder.path(), {2}, dtype::uint8));
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 150; ++i) {
      REQUIRE(load_one(dataset, i * 7 % 150) == bytes(2, static_cast<std::byte>(i * 7 % 150)));
    }
  }
}

TEST_CASE("the fingerprint of records changes with sizes, names and the form of a sample") {
  const temporary_folder folder;
  folder.write("0", "aabbccdd");
  const std::string two = list_raw(folder.path(), {2}, dtype::uint8)->fingerprint;
  CHECK(two == list_raw(folder.path(), {2}, dtype::uint8)->fingerprint);
  CHECK(two != list_raw(folder.path(), {4}, dtype::uint8)->fingerprint);
  CHECK(two != list_raw(folder.path(), {1, 2}, dtype::uint8)->fingerprint);
  CHECK(two != list_raw(folder.path(), {2}, dtype::int8)->fingerprint);
  folder.write("1", "aa");
  CHECK(two != list_raw(folder.path(), {2}, dtype::uint8)->fingerprint);
}
