#include "actors/job_worker/thrown.hpp"

#include "runtime/base/write_all.hpp"

#include <penstock/error.hpp>
#include <penstock/job.hpp>

#include <cxxabi.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <typeinfo>

namespace penstock::job_worker {
namespace {

std::string in_words(const std::type_info* type) {
  if (type == nullptr) return "an exception of another language";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : type->name();
}

/// The text with those of nested exceptions: "cannot open the index: no such file".
std::string text_of(const std::exception& e) {
  std::string text = e.what() != nullptr && *e.what() != '\0' ? e.what() : "an exception without a message";
  try {
    std::rethrow_if_nested(e);
  } catch (const std::exception& cause) {
    text += ": " + text_of(cause);
  } catch (...) {
  }
  return text;
}

}  // namespace

arena::job_exception_text thrown() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  try {
    throw;
  } catch (const job_exception& e) {
    return {e.type(), e.what(), e.traceback()};
  } catch (const std::exception& e) {
    return {in_words(type), text_of(e), {}};
  } catch (const std::string& text) {
    return {in_words(type), text, {}};
  } catch (const char* text) {
    return {in_words(type), text != nullptr ? text : "a null pointer", {}};
  } catch (const abi::__forced_unwind&) {
    static_cast<void>(write_all(
        STDERR_FILENO, "penstock: a function ended the thread that it was called on (pthread_exit)\n"));
    std::abort();
  } catch (...) {
    return {in_words(type), "an exception that is not a std::exception", {}};
  }
}

}  // namespace penstock::job_worker
