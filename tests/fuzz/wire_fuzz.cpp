// Frames from and to a worker: the reader accepts or refuses any bytes in any pieces, returns nothing after a
// refusal, and returns the same messages however the bytes are split.
#include "actors/protocol/wire.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <cstdlib>

using namespace penstock;
using namespace penstock::protocol;

namespace {

struct heard {
  std::vector<std::vector<char>> messages;
  bool refused = false;
  bool operator==(const heard&) const = default;
};

template <class Variant>
heard read(std::span<const char> bytes, std::size_t piece) {
  frame_reader<Variant> reader;
  heard all;
  for (std::size_t at = 0; at < bytes.size() && !all.refused; at += piece) {
    const auto ok =
        reader.feed(bytes.subspan(at, std::min(piece, bytes.size() - at)), [&](Variant&& message) {
          std::vector<char> again;
          append_frame(again, message);
          all.messages.push_back(std::move(again));
        });
    all.refused = !ok;
  }
  return all;
}

template <class Variant>
void check(std::span<const char> bytes) {
  if (bytes.empty()) return;
  const heard whole = read<Variant>(bytes, bytes.size());
  if (read<Variant>(bytes, 1 + bytes.size() / 3) != whole) std::abort();
  if (bytes.size() < 512 && read<Variant>(bytes, 1) != whole) std::abort();
}

template <class Variant>
std::string frames_of(std::initializer_list<Variant> messages) {
  std::vector<char> bytes;
  for (const Variant& message : messages) append_frame(bytes, message);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const char> bytes(reinterpret_cast<const char*>(data), size);
  check<from_worker>(bytes);
  check<to_worker>(bytes);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      frames_of<from_worker>({hello{}}),
      frames_of<from_worker>({dataset_described{"synthetic", 1000, {{"data", 0, 0, {64, 64, 3}}}, "abcdef"}}),
      frames_of<from_worker>({worker_ready{}, batch_loaded{1, 2, 7, {{3, "cat.jpg", "not a JPEG"}}, 12345}}),
      frames_of<from_worker>({worker_gives_up{78, 1, "cannot open the dataset"}}),
      frames_of<from_worker>({functions_described{{"resize", "thumbnail"}}, jobs_done{1, 5, 100}, samples_named{{"cat.jpg"}}}),
      frames_of<to_worker>(
          {open_dataset{version, {3, 1}, "some config"}, assign_slots{4096, 3, 65, 3, 8, 1 << 30}}),
      frames_of<to_worker>({load_batch{1, 5, 2, {{17, 1}, {18, 2}, {19, 1}}}, drop_batch{1, 5}, name_samples{{17, 18}}, stop_work{}}),
      frames_of<to_worker>({run_jobs{1, 5, 100}, stop_work{}}),
  };
}
