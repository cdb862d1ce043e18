#!/bin/sh
# Writes box.cas and box.dat, Fluent's formats, with OpenFOAM 1912's foamMeshToFluent
# and foamDataToFluent: 3 x 2 x 2 cells, whose pressure is their number.
set -e
case=$(mktemp -d)
here=$(pwd)
mkdir "$case/system" "$case/constant" "$case/0"
cd "$case"
head() { echo "FoamFile { version 2.0; format ascii; class $1; object $2; }"; }
{ head dictionary controlDict; echo "application none; startFrom startTime;
startTime 0; stopAt endTime; endTime 1; deltaT 1; writeControl timeStep;
writeInterval 1;"; } > system/controlDict
{ head dictionary fvSchemes; echo "ddtSchemes { default steadyState; }
gradSchemes { default Gauss linear; } divSchemes { default none; }
laplacianSchemes { default none; } interpolationSchemes { default linear; }
snGradSchemes { default corrected; }"; } > system/fvSchemes
head dictionary fvSolution > system/fvSolution
{ head dictionary blockMeshDict; echo "
vertices ((0 0 0) (3 0 0) (3 2 0) (0 2 0) (0 0 2) (3 0 2) (3 2 2) (0 2 2));
blocks (hex (0 1 2 3 4 5 6 7) (3 2 2) simpleGrading (1 1 1));
boundary (
 inlet { type patch; faces ((0 4 7 3)); }
 outlet { type patch; faces ((2 6 5 1)); }
 floor { type wall; faces ((1 5 4 0)); }
 sides { type patch; faces ((3 7 6 2) (0 3 2 1) (4 5 6 7)); }
);"; } > system/blockMeshDict
{ head dictionary foamDataToFluentDict; echo "p 1;"; } > system/foamDataToFluentDict
{ head volScalarField p; echo "dimensions [0 2 -2 0 0 0 0];
internalField nonuniform List<scalar> 12 (0 1 2 3 4 5 6 7 8 9 10 11);
boundaryField { \".*\" { type zeroGradient; } }"; } > 0/p
blockMesh
foamMeshToFluent
foamDataToFluent
cp fluentInterface/*.msh "$here/box.cas"
cp fluentInterface/*0.dat "$here/box.dat"
