// The table of jobs in a slot: what both sides write and read, and what the session refuses.
#include "runtime/arena/job_slot.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::arena;
using namespace std::chrono_literals;

namespace {

struct alignas(job_alignment) line {
  std::array<std::byte, job_alignment> bytes;
};

class slot_memory {
 public:
  explicit slot_memory(std::size_t bytes)
      : lines_((bytes + job_alignment - 1) / job_alignment), bytes_(bytes) {
    std::ranges::fill(all(), std::byte{0xee});
  }
  [[nodiscard]] std::span<std::byte> all() { return {reinterpret_cast<std::byte*>(lines_.data()), bytes_}; }
  [[nodiscard]] job_slot slot() { return job_slot(all()); }

 private:
  std::vector<line> lines_;
  std::size_t bytes_;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<job_order> orders(std::uint32_t count) {
  std::vector<job_order> all;
  for (std::uint32_t i = 0; i < count; ++i) all.push_back({.job = i + 1});
  return all;
}

constexpr steady_time noon{12h};

}  // namespace

TEST_CASE("the worker reads what the session wrote, each argument at a multiple of 64 bytes") {
  slot_memory memory(4096);
  const job_slot slot = memory.slot();
  slot.write(7, std::vector<job_order>{
                    {.job = 41, .function = 2, .attempt = 3, .limit = 5s, .argument = bytes_of("abc")},
                    {.job = 42, .argument_elsewhere = true},
                    {.job = 43, .argument = bytes_of("defg")}});
  REQUIRE(slot.rows(7).value() == 3);
  const job_reading first = slot.read(0).value();
  CHECK(first.job == 41);
  CHECK(first.function == 2);
  CHECK(first.attempt == 3);
  CHECK(first.limit == 5s);
  CHECK(first.state == row_state::waiting);
  CHECK(text_of(slot.bytes(first.argument_offset, first.argument_bytes)) == "abc");
  CHECK(slot.read(1)->argument_elsewhere);
  CHECK(slot.read(1)->argument_bytes == 0);
  const job_reading third = slot.read(2).value();
  CHECK(text_of(slot.bytes(third.argument_offset, third.argument_bytes)) == "defg");
  for (const std::uint32_t row : {0U, 1U, 2U}) CHECK(slot.read(row)->argument_offset % job_alignment == 0);
}

TEST_CASE("the session reads a row's outcome and times") {
  slot_memory memory(4096);
  const job_slot slot = memory.slot();
  slot.write(1, orders(3));
  REQUIRE(slot.begin(0, noon));
  CHECK(slot.read(0)->state == row_state::begun);
  CHECK(slot.read(0)->begun == noon);
  slot.end(0, row_state::finished, 1024, 10, false, 3ms);
  REQUIRE(slot.begin(1, noon + 1s));
  slot.end(1, row_state::failed, 1088, 20, true, 4ms);
  const job_reading done = slot.read(0).value();
  CHECK(done.state == row_state::finished);
  CHECK(done.result_offset == 1024);
  CHECK(done.result_bytes == 10);
  CHECK_FALSE(done.result_elsewhere);
  CHECK(done.busy == 3ms);
  CHECK(slot.read(1)->state == row_state::failed);
  CHECK(slot.read(1)->result_elsewhere);
  CHECK(slot.read(2)->state == row_state::waiting);
}

TEST_CASE("a lease takes exactly the number of bytes computed in advance, and results begin after them") {
  for (const std::uint32_t rows : {1U, 2U, 7U, 256U}) {
    std::vector<std::uint64_t> sizes;
    std::vector<std::string> arguments;
    for (std::uint32_t i = 0; i < rows; ++i)
      arguments.emplace_back(i * 37 % 200, static_cast<char>('a' + i % 26));
    std::vector<job_order> all;
    for (const std::string& a : arguments) {
      sizes.push_back(a.size());
      all.push_back({.job = 1, .argument = bytes_of(a)});
    }
    const std::uint64_t before = job_bytes_before_results(sizes);
    CHECK(before % job_alignment == 0);
    slot_memory memory(before);  // the slot has not a byte more
    memory.slot().write(1, all);
    CHECK(memory.slot().first_result(rows).value() == before);
    for (std::uint32_t i = 0; i < rows; ++i) {
      const job_reading row = memory.slot().read(i).value();
      CHECK(text_of(memory.slot().bytes(row.argument_offset, row.argument_bytes)) == arguments[i]);
    }
    CHECK(memory.slot().room_from(before) == 0);
  }
}

TEST_CASE("a table without rows is valid, and results begin after its header") {
  slot_memory memory(256);
  memory.slot().write(3, {});
  CHECK(memory.slot().rows(3).value() == 0);
  CHECK(memory.slot().first_result(0).value() == job_table_bytes(0));
}

TEST_CASE("a revoked row never starts, and a started row cannot be revoked") {
  slot_memory memory(1024);
  const job_slot slot = memory.slot();
  slot.write(1, orders(2));
  CHECK(slot.revoke(0));
  CHECK_FALSE(slot.revoke(0));
  CHECK_FALSE(slot.begin(0, noon));
  CHECK(slot.read(0)->state == row_state::revoked);
  CHECK(slot.begin(1, noon));
  CHECK_FALSE(slot.revoke(1));
  slot.end(1, row_state::finished, 0, 0, false, 0ns);
  CHECK_FALSE(slot.revoke(1));
  CHECK(slot.read(1)->state == row_state::finished);
}

TEST_CASE("when a session revokes a row that its worker starts, exactly one of them succeeds") {
  constexpr std::uint32_t rows = 256;
  slot_memory memory(64 * 1024);
  const job_slot slot = memory.slot();
  for (std::uint32_t round = 1; round <= 200; ++round) {
    slot.write(round, orders(rows));
    std::array<bool, rows> begun{};
    std::array<bool, rows> revoked{};
    std::atomic<int> there{0};
    const auto meet = [&] {
      there.fetch_add(1);
      while (there.load() < 2) std::this_thread::yield();
    };
    std::thread worker([&] {
      meet();
      for (std::uint32_t i = 0; i < rows; ++i) {
        begun[i] = slot.begin(i, noon);
        if (begun[i]) slot.end(i, row_state::finished, 0, 0, false, 1ns);
      }
    });
    meet();
    for (std::uint32_t i = rows; i-- > 0;) {
      revoked[i] = slot.revoke(i);
      static_cast<void>(slot.read(i));  // reading must work at any time
    }
    worker.join();
    for (std::uint32_t i = 0; i < rows; ++i) {
      REQUIRE(begun[i] != revoked[i]);
      REQUIRE(slot.read(i)->state == (begun[i] ? row_state::finished : row_state::revoked));
    }
  }
}

TEST_CASE("a result is complete when its row says so") {
  slot_memory memory(4096);
  const job_slot slot = memory.slot();
  for (std::uint32_t round = 1; round <= 2000; ++round) {
    slot.write(round, orders(1));
    std::thread worker([&] {
      if (!slot.begin(0, noon)) return;
      const std::uint64_t sum = round * 3;
      std::memcpy(slot.bytes(1024, sizeof sum).data(), &sum, sizeof sum);
      slot.end(0, row_state::finished, 1024, sizeof sum, false, 1ns);
    });
    while (slot.read(0)->state != row_state::finished) std::this_thread::yield();
    std::uint64_t found = 0;
    std::memcpy(&found, slot.bytes(slot.read(0)->result_offset, sizeof found).data(), sizeof found);
    worker.join();
    REQUIRE(found == round * 3);
  }
}

TEST_CASE("a guard word after a result shows how far it was overrun") {
  slot_memory memory(2048);
  const job_slot slot = memory.slot();
  constexpr std::uint64_t place = 1024;
  constexpr std::uint64_t room = 100;
  slot.guard(place, room);
  CHECK(slot.overrun(place, room) == 0);
  std::ranges::fill(slot.bytes(place, room), std::byte{0xff});
  CHECK(slot.overrun(place, room) == 0);
  for (std::uint64_t beyond = 1; beyond <= job_guard_bytes; ++beyond) {
    for (const unsigned char value : {0x00, 0xff, 0x20}) {
      slot.guard(place, room);
      std::ranges::fill(slot.bytes(place + room, beyond), static_cast<std::byte>(value));
      CHECK(slot.overrun(place, room) == beyond);
    }
  }
}

TEST_CASE("a result may fill the slot up to its guard word, and the next one begins after that") {
  slot_memory memory(2048);
  const job_slot slot = memory.slot();
  CHECK(slot.room_from(1024) == 1024 - job_guard_bytes);
  slot.guard(1024, slot.room_from(1024));
  CHECK(slot.overrun(1024, slot.room_from(1024)) == 0);
  CHECK(slot.room_from(2040) == 0);
  CHECK(slot.room_from(2048) == 0);
  CHECK(slot.room_from(1 << 20) == 0);
  CHECK(job_next_result(1024, 0) == 1088);
  CHECK(job_next_result(1024, 56) == 1088);
  CHECK(job_next_result(1024, 57) == 1152);
}

// ---- invalid contents -------------------------------------------------------------------------------------

TEST_CASE("a table of another generation, or with more rows than fit, is refused") {
  slot_memory memory(1024);
  const job_slot slot = memory.slot();
  slot.write(5, orders(2));
  CHECK(slot.rows(4).error().code == errc::protocol);
  CHECK(slot.rows(6).error().message == "the slot holds the table of generation 5, not 6");
  for (const std::uint32_t rows : {13U, 1000U, 0xffff'ffffU}) {
    std::memcpy(memory.all().data() + 4, &rows, sizeof rows);
    CHECK(slot.rows(5).error().code == errc::protocol);
  }
  const std::uint32_t most = 12;  // (1024 - 64) / 80
  std::memcpy(memory.all().data() + 4, &most, sizeof most);
  CHECK(slot.rows(5).value() == most);
  slot_memory tiny(32);
  CHECK_FALSE(tiny.slot().rows(5));
}

TEST_CASE(
    "a result that does not lie within the slot is refused, even if the sum of offset and size overflows") {
  slot_memory memory(4096);
  const job_slot slot = memory.slot();
  struct place {
    std::uint64_t offset, bytes;
    bool is_within;
  };
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  for (const place& p :
       {place{0, 0, true}, place{4096, 0, true}, place{4095, 1, true}, place{0, 4096, true},
        place{4096, 1, false}, place{0, 4097, false}, place{4097, 0, false}, place{64, 4033, false},
        place{huge, 1, false}, place{1, huge, false}, place{huge, huge, false}, place{64, huge - 63, false},
        place{huge - 63, 64, false}, place{std::uint64_t{1} << 63, std::uint64_t{1} << 63, false}}) {
    slot.write(1, orders(1));
    REQUIRE(slot.begin(0, noon));
    slot.end(0, row_state::finished, p.offset, p.bytes, false, 1ns);
    const auto row = slot.read(0);
    CHECK(row.has_value() == p.is_within);
    if (!row) CHECK(row.error().code == errc::protocol);
    // The table does not limit the size of a result in a memfd: whoever receives the memfd checks it.
    slot.end(0, row_state::finished, p.offset, p.bytes, true, 1ns);
    REQUIRE(slot.read(0));
    CHECK(slot.read(0)->result_offset == 0);
    CHECK(slot.read(0)->result_bytes == p.bytes);
  }
}

TEST_CASE("an invalid row state is refused") {
  slot_memory memory(1024);
  const job_slot slot = memory.slot();
  slot.write(1, orders(1));
  for (const std::uint32_t state : {6U, 7U, 0xffff'ffffU}) {
    REQUIRE(slot.begin(0, noon));
    slot.end(0, static_cast<row_state>(state), 0, 0, false, 0ns);
    const auto row = slot.read(0);
    REQUIRE_FALSE(row);
    CHECK(row.error().message.find("which does not exist") != std::string::npos);
    slot.write(1, orders(1));
  }
}

TEST_CASE("for arbitrary bytes in a slot, reading is refused or stays within the slot") {
  std::mt19937_64 random(20261122);
  slot_memory memory(2048);
  const job_slot slot = memory.slot();
  std::uint64_t taken = 0;
  for (int round = 0; round < 20'000; ++round) {
    slot.write(1, orders(4));
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (slot.begin(i, noon)) slot.end(i, row_state::finished, 1024, 8, false, 1ns);
    }
    for (int changes = 1 + static_cast<int>(random() % 8); changes > 0; --changes)
      memory.all()[random() % job_table_bytes(4)] = static_cast<std::byte>(random());
    const auto rows = slot.rows(1);
    if (!rows) continue;
    REQUIRE(job_table_bytes(*rows) <= 2048 + job_alignment);
    static_cast<void>(slot.first_result(*rows));
    for (std::uint32_t i = 0; i < *rows; ++i) {
      const auto row = slot.read(i);
      if (!row) continue;
      ++taken;
      REQUIRE(row->argument_offset + row->argument_bytes <= 2048);
      if (!row->result_elsewhere) REQUIRE(row->result_offset + row->result_bytes <= 2048);
    }
  }
  CHECK(taken > 0);
}
