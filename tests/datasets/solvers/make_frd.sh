#!/bin/sh
# Writes beam.frd: two cubes of CalculiX in tension, 12 nodes, in two steps. Run it in
# this folder, with ccx installed.
set -e
here=$PWD
cd "$(mktemp -d)"
cat > beam.inp <<'X'
*NODE
1,0,0,0
2,1,0,0
3,1,1,0
4,0,1,0
5,0,0,1
6,1,0,1
7,1,1,1
8,0,1,1
9,2,0,0
10,2,1,0
11,2,0,1
12,2,1,1
*ELEMENT,TYPE=C3D8,ELSET=ALL
1,1,2,3,4,5,6,7,8
2,2,9,10,3,6,11,12,7
*MATERIAL,NAME=STEEL
*ELASTIC
210000,0.3
*SOLID SECTION,ELSET=ALL,MATERIAL=STEEL
*BOUNDARY
1,1,3
4,1,1
5,1,1
8,1,1
4,3,3
5,2,2
*STEP
*STATIC
*CLOAD
9,1,10
10,1,10
11,1,10
12,1,10
*NODE FILE
U
*EL FILE
S
*END STEP
*STEP
*STATIC
*CLOAD
9,1,20
10,1,20
11,1,20
12,1,20
*END STEP
X
ccx beam
mv beam.frd "$here"
