#include "runtime/net/group_secret.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace penstock;
using namespace penstock::group;

namespace {

variable_lookup with_secret(const std::optional<std::string>& secret) {
  return
      [secret](const std::string& name) { return name == "PENSTOCK_GROUP_SECRET" ? secret : std::nullopt; };
}

class secret_file {
 public:
  explicit secret_file(const std::string& text, ::mode_t mode = 0600) {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-secret-XXXXXX").string();
    const int fd = ::mkstemp(name.data());
    REQUIRE(fd >= 0);
    ::close(fd);
    path_ = name;
    std::ofstream(path_) << text;
    REQUIRE(::chmod(path_.c_str(), mode) == 0);
  }
  secret_file(const secret_file&) = delete;
  secret_file& operator=(const secret_file&) = delete;
  ~secret_file() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool says(const result<std::optional<group_secret>>& found, const std::string& words) {
  return !found && found.error().code == errc::config &&
         found.error().message.find(words) != std::string::npos;
}

const std::string good = "0123456789abcdef0123456789abcdef";

}  // namespace

TEST_CASE("a group's secret comes from its file or else from the environment, without trailing white space") {
  const secret_file file(good + " \n");
  CHECK(find_secret(file.path(), with_secret("another secret of the group")).value()->bytes == good);
  CHECK(find_secret("", with_secret(good + "\n")).value()->bytes == good);
  CHECK_FALSE(find_secret("", with_secret(std::nullopt)).value());
}

TEST_CASE("a secret file that other users can read is refused with its mode") {
  for (const auto mode : {0640, 0604, 0620, 0602, 0601}) {
    const secret_file file(good, static_cast<::mode_t>(mode));
    CHECK(says(find_secret(file.path(), with_secret(std::nullopt)), fmt::format("(mode {:04o})", mode)));
    CHECK(says(find_secret(file.path(), with_secret(std::nullopt)), "chmod 600"));
  }
  const secret_file mine(good, 0400);
  CHECK(find_secret(mine.path(), with_secret(std::nullopt)));
}

TEST_CASE("a secret that is too short, too long or missing is refused, and never printed") {
  for (const std::size_t size :
       {0UL, 1UL, secret_bytes_min - 1, secret_bytes_max + 1, 10 * secret_bytes_max}) {
    const std::string text(size, 'x');
    const secret_file file(text);
    CHECK(says(find_secret(file.path(), with_secret(std::nullopt)), "it needs 16 to 4096"));
    const auto found = find_secret("", with_secret(text));
    CHECK(says(found, "it needs 16 to 4096"));
    CHECK((size == 0 || found.error().message.find(text + "'") == std::string::npos));
  }
  CHECK(find_secret("", with_secret(std::string(secret_bytes_min, 'x'))));
  CHECK(find_secret("", with_secret(std::string(secret_bytes_max, 'x'))));
  CHECK(read_secret("/nowhere/secret", "the hosts'").error().message.starts_with("reading the hosts' secret from '/nowhere/secret'"));
  CHECK(says(find_secret("/nowhere/secret", with_secret(std::nullopt)), "No such file"));
  CHECK(says(find_secret("/tmp", with_secret(std::nullopt)), "not a regular file"));
}

TEST_CASE("ranks on several hosts need a secret, unless any peer may join") {
  const group_address host{group_address::kind::tcp, "node0", 5000};
  const group_address here{group_address::kind::abstract_socket, "penstock-group/0/1/train", 0};
  CHECK(check_secret(here, false, false));
  CHECK(check_secret(host, true, false));
  CHECK(check_secret(host, false, true));
  const auto refused = check_secret(host, false, false);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message ==
        "the group meets at node0:5000, over the network, and has no secret: set [group] secret_file or "
        "PENSTOCK_GROUP_SECRET to the same secret for all ranks, or [group] insecure = true to admit anyone "
        "who can reach that port");
}

TEST_CASE("over the network a passphrase is stretched, and a generated secret is not") {
  const group_address host{group_address::kind::tcp, "node0", 5000};
  const group_address here{group_address::kind::abstract_socket, "penstock-group/0/1/train", 0};
  const auto secret = [](const group_address& where, const std::string& text, const std::string& group) {
    auto found = secret_of_links(where, group, "", false, with_secret(text));
    REQUIRE(found);
    return (*found)->bytes;
  };
  const std::string drawn = good + good;
  const std::string sentence = "correct horse battery";
  CHECK(secret(host, drawn, "7/photos") == drawn);
  CHECK(secret(here, sentence, "7/photos") == sentence);
  // hashlib.scrypt(b"correct horse battery", salt=b"penstock group secret 1: 7/photos", n=2**15, r=8, p=3, dklen=32)
  const std::string key = secret(host, sentence, "7/photos");
  std::string digits;
  for (const char byte : key) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  CHECK(digits == "8a3299c94f3217aa094d18bde8be25d8ee689e9685efd712fbe65d94ca11f7da");
  CHECK(secret(host, sentence, "8/photos") != key);
  for (const std::string& short_one : {good, drawn.substr(1), drawn.substr(1) + "x"})
    CHECK(secret(host, short_one, "7/photos").size() == 32);
}

TEST_CASE("links between hosts without a secret are refused before any key is stretched") {
  const group_address host{group_address::kind::tcp, "node0", 5000};
  CHECK(says(secret_of_links(host, "7/photos", "", false, with_secret(std::nullopt)), "has no secret"));
  CHECK_FALSE(secret_of_links(host, "7/photos", "", true, with_secret(std::nullopt)).value());
}
