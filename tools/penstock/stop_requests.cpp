#include "tools/penstock/stop_requests.hpp"

#include <csignal>

namespace penstock::cli {

int stop_requests::begun_by(int signal, steady_time now) {
  if (begun_ > 0 && (signal == SIGHUP || now - last_ < one_request)) return 0;
  last_ = now;
  return ++begun_;
}

}  // namespace penstock::cli
