class Tessera < Formula
  desc "Where the memory of a GPU job went: reads PyTorch's memory snapshots"
  homepage "@HOME@"
  url "@HOME@/releases/download/v@VERSION@/tessera-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "meson" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "python@3.13" => :build
  depends_on "jansson"
  depends_on "libmicrohttpd"
  depends_on "libyaml"
  depends_on "ncurses"
  depends_on "pcre2"
  depends_on "sqlite"
  depends_on "utf8proc"
  depends_on "xz"
  depends_on "zlib"
  depends_on "zstd"

  on_macos do
    depends_on macos: :big_sur
  end

  on_linux do
    depends_on "libedit"
  end

  def install
    args = ["-Dtests=disabled", "-Dserve=#{OS.mac? ? "disabled" : "enabled"}"]
    system "meson", "setup", "build", *args, *std_meson_args
    system "meson", "compile", "-C", "build"
    system "meson", "install", "-C", "build"
  end

  test do
    system bin/"tessera", "simulate", "gpt2", "--batch", "1", "--seq", "64", "-o", "run.pickle"
    assert_match "Device 0: peak", shell_output("#{bin}/tessera peak run.pickle")
  end
end
