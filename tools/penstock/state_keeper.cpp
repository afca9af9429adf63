#include "tools/penstock/state_keeper.hpp"

#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/control/file_position.hpp"
#include "tools/penstock/state_file.hpp"

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace penstock::cli {

state_keeper::state_keeper(std::string path) : path_(std::move(path)) {}

result<std::vector<std::byte>> state_keeper::read() {
  auto found = read_state(path_);
  if (found && !found->empty()) now_holds(*found);
  return found;
}

result<void> state_keeper::write(std::vector<std::byte> state) {
  if (state == contents_) return {};
  const auto note_writing = [this](bool writing) {
    const std::lock_guard hold(mutex_);
    writing_ = writing;
  };
  note_writing(true);
  auto ok = replace_file(path_, std::string_view(reinterpret_cast<const char*>(state.data()), state.size()));
  if (ok) now_holds(std::move(state));
  note_writing(false);
  return ok;
}

std::string state_keeper::left_behind() const {
  const std::lock_guard hold(mutex_);
  const std::string begin = position_.empty() ? fmt::format("'{}' holds no position", printable(path_))
                                              : fmt::format("'{}' holds the position: {}", printable(path_), position_);
  return begin + (writing_ ? "; a newer one could not be written in time" : "");
}

void state_keeper::now_holds(std::vector<std::byte> state) {
  contents_ = std::move(state);
  const auto parsed = schedule::parse_state(contents_);
  const std::lock_guard hold(mutex_);
  position_ = parsed ? position_in_words(*parsed) : "";
}

}  // namespace penstock::cli
