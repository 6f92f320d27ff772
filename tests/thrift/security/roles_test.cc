// Every call has its roles, and names of roles are parsed as they are printed.
#include "thrift/security/roles.h"
#include "tests/support/file_text.h"

#include <cstdlib>
#include <regex>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

// The methods of `service NAME { ... }` in the IDL.
std::set<std::string> MethodsOf(const std::string& service) {
  const char* const root = std::getenv("CAIRN_SOURCE_ROOT");
  const std::string text =
      FileText(std::string(root == nullptr ? "." : root) + "/thrift/cairn.thrift");
  std::string idl = std::regex_replace(text, std::regex(R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)"), "");
  const size_t begin = idl.find("service " + service + " {");
  EXPECT_NE(begin, std::string::npos) << service;
  idl = idl.substr(begin, idl.find("\n}", begin) - begin);
  std::set<std::string> methods;
  const std::regex call(R"(\w+\s+(\w+)\s*\(\s*1:)");
  for (std::sregex_iterator at(idl.begin(), idl.end(), call), end; at != end; ++at) {
    if ((*at)[1] != "throws") methods.insert((*at)[1]);
  }
  return methods;
}

// A method that is added to the IDL is forbidden until it gets roles in the table.
TEST(Roles, TheTableHasExactlyTheMethodsOfTheIdl) {
  std::set<std::string> in_table;
  for (const MethodRoles& row : kMethodRoles) {
    EXPECT_TRUE(in_table.insert(std::string(row.name)).second) << row.name << " twice";
    EXPECT_NE(row.roles & kAdmin, 0U) << row.name << ": an admin may make every call";
  }
  const std::set<std::string> methods = MethodsOf("ParameterServer");
  EXPECT_GE(methods.size(), 16U);
  EXPECT_EQ(in_table, methods);
  EXPECT_EQ(MethodsOf("Authentication"), std::set<std::string>{"authenticate"});
}

TEST(Roles, AnUnknownMethodIsForbidden) {
  EXPECT_EQ(RolesFor("frobnicate"), 0U);
  EXPECT_EQ(RolesFor(""), 0U);
  EXPECT_EQ(RolesFor("push"), kWorker | kAdmin);
}

TEST(Roles, HaveNames) {
  EXPECT_EQ(RoleFromName("admin"), kAdmin);
  EXPECT_EQ(RoleFromName("root"), 0U);
  EXPECT_THAT(RoleNames(kWorker | kAdmin), ElementsAre("worker", "admin"));
  EXPECT_EQ(RolesText(0), "none");
}

}  // namespace
}  // namespace cairn
