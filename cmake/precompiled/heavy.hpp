// The headers that take longest to parse, as measured with clang's -ftime-trace: see PenstockPrecompiled.cmake.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/protocol/link.hpp"
#include "actors/protocol/local/actors.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
