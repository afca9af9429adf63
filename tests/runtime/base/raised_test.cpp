#include "runtime/base/raised.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using strings = std::vector<std::string>;

namespace {

constexpr const char* traceback = R"(Traceback (most recent call last):
  File "/opt/lib/penstock/_loading.py", line 471, in _samples
    samples.append(dataset[index])
  File "/home/me/data.py", line 12, in __getitem__
    return self.line(index)
  File "/home/me/data.py", line 7, in line
    raise ValueError("no line")
ValueError: no line 51
)";

}  // namespace

TEST_CASE("an exception has its type, its message and the program's frames, innermost last") {
  const auto raised = raised_from("ValueError: no line 51: gone", traceback);
  CHECK(raised->type == "ValueError");
  CHECK(raised->message == "no line 51: gone");
  CHECK(raised->frames == strings{"/home/me/data.py:12, in __getitem__", "/home/me/data.py:7, in line"});
}

TEST_CASE("an exception without message and traceback yields neither") {
  const auto raised = raised_from("StopIteration", "");
  CHECK(raised->type == "StopIteration");
  CHECK(raised->message.empty());
  CHECK(raised->frames.empty());
}

TEST_CASE("the frames are those of the exception itself, not of its cause") {
  const std::string both = std::string(traceback) + "\nThe above exception was the direct cause of the following exception:\n\n" +
                           "Traceback (most recent call last):\n  File \"a.py\", line 3, in outer\n    raise KeyError(1) from e\nKeyError: 1\n";
  CHECK(raised_from("KeyError: 1", both)->frames == strings{"a.py:3, in outer"});
}

TEST_CASE("frames of an error inside penstock are kept") {
  CHECK(raised_from("TypeError: x", "  File \"/lib/penstock/_loading.py\", line 3, in load\n")->frames ==
        strings{"/lib/penstock/_loading.py:3, in load"});
}

TEST_CASE("the number of frames is limited to the innermost, and a long frame keeps its end") {
  std::string deep = "Traceback (most recent call last):\n";
  for (int i = 0; i < 1000; ++i) deep += "  File \"deep.py\", line " + std::to_string(i) + ", in again\n    again()\n";
  const auto raised = raised_from("RecursionError: " + std::string(10'000, 'x'), deep);
  REQUIRE(raised->frames.size() == raised_frames_max);
  CHECK(raised->frames.back() == "deep.py:999, in again");
  CHECK(raised->message.size() <= raised_message_bytes_max);
  const auto far = raised_from("E", "  File \"/" + std::string(5000, 'd') + "/data.py\", line 5, in load\n");
  REQUIRE(far->frames.size() == 1);
  CHECK(far->frames.front().size() <= raised_frame_bytes_max);
  CHECK(far->frames.front().ends_with("/data.py:5, in load"));
}

TEST_CASE("lines that only look like frames are not taken for frames") {
  CHECK(raised_from("E", "File \"a.py\", line 3, in f\n  File \"b.py\", line x\n  File \"c.py\"\n  File ")->frames.empty());
}
