// Runs a fuzz target over every file of the directories (or files) named: the corpus as an ordinary test.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t bytes);

namespace {

void replay(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string octets{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(octets.data()), octets.size());
}

}  // namespace

int main(int count, char** arguments) {
    size_t files = 0;
    for (int i = 1; i < count; ++i) {
        if (!std::filesystem::is_directory(arguments[i])) {
            replay(arguments[i]);
            ++files;
            continue;
        }
        for (const auto& entry : std::filesystem::directory_iterator(arguments[i])) {
            replay(entry.path());
            ++files;
        }
    }
    std::printf("%zu files replayed\n", files);
    return files > 0 ? 0 : 1;
}
