# cmake -DOUTPUT=FILE.cpp -DREFERENCE=FILE -DDEFAULT=FILE -P embed.cmake: the two configurations as functions.
file(READ "${REFERENCE}" reference)
file(READ "${DEFAULT}" default)
set(source [=[
#include "config/config.hpp"
std::string_view postern::config::reference_toml() { return R"reference(@reference@)reference"; }
std::string_view postern::config::default_toml() { return R"default(@default@)default"; }
]=])
string(CONFIGURE "${source}" source @ONLY)
file(WRITE "${OUTPUT}" "${source}")
