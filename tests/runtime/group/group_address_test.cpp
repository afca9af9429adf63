#include "runtime/group/group_address.hpp"

#include "tests/runtime/base/launchers.hpp"

using namespace penstock;
using namespace penstock::group;
using namespace penstock::launchers;

TEST_CASE("ranks on one host meet at an abstract socket that only they use") {
  const group_address a = address_of(place(openmpi), of(openmpi), 1000, "train").value();
  CHECK(a.what == group_address::kind::abstract_socket);
  CHECK(a.name == "penstock-group/1000/4711/train");
  CHECK_FALSE(address_of(place(openmpi), of(openmpi), 1000, "validate").value() == a);
  CHECK_FALSE(address_of(place(openmpi), of(openmpi), 1001, "train").value() == a);
  CHECK(address_of(place(openmpi), of(openmpi), 1000, std::string(200, 's')).value().name.size() <= 107);
}

TEST_CASE("ranks on several hosts meet at the first host, at a port that torch does not use") {
  const group_address s = address_of(place(slurm), of(slurm), 0, "train").value();
  CHECK(s.what == group_address::kind::tcp);
  CHECK(s.name == "gpu03");
  CHECK(s.port >= 20'000);
  CHECK(s.port < 32'000);
  for (const auto& [list, first] :
       variables{{"a1,b[2-3]", "a1"}, {"n7", "n7"}, {"n[7]", "n7"}, {"r[1,2]x", "r1"}})
    CHECK(
        address_of(place(slurm), of(with(slurm, {{"SLURM_STEP_NODELIST", list}})), 0, "train").value().name ==
        first);
  const variables named = with(torchrun, {{"TORCHELASTIC_RUN_ID", "job7"}});
  const group_address t = address_of(place(named), of(named), 0, "train").value();
  CHECK(t.name == "node0");
  variables taken = with(named, {{"PENSTOCK_GROUP", "job7"}, {"MASTER_PORT", "1"}});
  const std::uint16_t port = address_of(place(taken), of(taken), 0, "train").value().port;
  taken["MASTER_PORT"] = std::to_string(port);
  CHECK(address_of(place(taken), of(taken), 0, "train").value().port != port);
}

TEST_CASE("a given address is used, and a missing one is requested") {
  const auto at = [](const char* given) {
    return address_of(place(openmpi), of(with(openmpi, {{"PENSTOCK_GROUP_ADDR", given}})), 0, "train");
  };
  CHECK(at("node7:5000").value() == group_address{group_address::kind::tcp, "node7", 5000});
  CHECK(at("[::1]:5000").value() == group_address{group_address::kind::tcp, "::1", 5000});
  CHECK(at("@mine").value() ==
        group_address{group_address::kind::abstract_socket, "penstock-group/0/mine/train", 0});
  CHECK(at("unix:@mine").value() == at("@mine").value());
  for (const char* same : {"node7:5000", "[::1]:5000"}) CHECK(text_of(at(same).value()) == same);
  CHECK(text_of(at("@mine").value()) == "@penstock-group/0/mine/train");
  for (const char* nonsense :
       {"node7", "unix:@", "[]:1", "node7:70000", "node7:1x", ":5000", "node7:", "node7:99999", "@", ""})
    CHECK_FALSE(at(nonsense));
  CHECK_FALSE(at(("@" + std::string(108, 'n')).c_str()));
  const variables nowhere = without(torchrun, "MASTER_ADDR");
  CHECK(address_of(place(nowhere), of(nowhere), 0, "train").error().message.find("set MASTER_ADDR") !=
        std::string::npos);
  const variables nameless = with(hydra, {{"PMI_SIZE", "4"}, {"MASTER_ADDR", "node0"}});
  CHECK(address_of(place(nameless), of(nameless), 0, "train").error().message.find("set PENSTOCK_GROUP") !=
        std::string::npos);
}

TEST_CASE("two sessions of one program meet at two sockets, even if the socket is given") {
  const auto at = [](const char* session) {
    return address_of(place(openmpi), of(with(openmpi, {{"PENSTOCK_GROUP_ADDR", "@mine"}})), 0, session)
        .value();
  };
  CHECK(at("train") == at("train"));
  CHECK(at("train").name != at("validation").name);
}
