# nix-build packaging/nix                 the programs and the library
# nix-build packaging/nix --arg static true      static programs alone, by musl
{ pkgs ? import <nixpkgs> { }, static ? false }:

let
  p = if static then pkgs.pkgsStatic else pkgs;
  header = builtins.readFile ../../libckpt/include/ckpt.h;
  version = builtins.head (builtins.match ".*CKPT_VERSION_STRING \"([^\"]*)\".*" header);
in
p.stdenv.mkDerivation {
  pname = "zckpt";
  inherit version;
  src = pkgs.lib.cleanSourceWith {
    src = ../..;
    filter = path: type: !(type == "directory" && builtins.elem (baseNameOf path) [ "build" ".git" ]);
  };
  nativeBuildInputs = [ pkgs.pkg-config ];
  buildInputs = [ p.xxHash p.libdeflate p.libarchive p.zstd p.libyaml p.openssl p.liburing ]
    ++ pkgs.lib.optionals (!static) [ p.cjson p.openblas p.libmicrohttpd p.fuse3 ];
  enableParallelBuilding = true;
  makeFlags = [ "PREFIX=$(out)" "MPI=0" "CUDA=0" ]
    ++ (if static then [ "static" ] else [ "JSON=system" "BLAS=1" ]);
  installPhase = pkgs.lib.optionalString static ''
    mkdir -p $out/bin
    cp build/static/zckpt build/static/ztrain $out/bin
  '';
  meta = {
    description = "Converter and resharder of DeepSpeed ZeRO checkpoints";
    license = pkgs.lib.licenses.asl20;
    platforms = pkgs.lib.platforms.linux;
    mainProgram = "zckpt";
  };
}
