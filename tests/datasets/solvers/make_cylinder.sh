#!/bin/sh
# A two-dimensional flow of OpenFOAM (openfoam 1912 of Debian), one cell thick between two
# `empty` sides: potentialFoam past half a cylinder, 54 cells, as foamToVTK writes it.
# Usage: make_cylinder.sh FOLDER; here are FOLDER/layer/VTK/layer_0.vtm and its folder,
# without the _0 of the time.
set -e
export WM_PROJECT_DIR=${WM_PROJECT_DIR:-/usr/share/openfoam}
mkdir -p "$1"/layer/0 "$1"/layer/constant "$1"/layer/system
cd "$1"/layer

head() { printf 'FoamFile { version 2.0; format ascii; class %s; object %s; }\n' "$1" "$2"; }

{ head dictionary blockMeshDict; cat <<'X'
vertices (
 (-3 0 0) (-1 0 0) (1 0 0) (3 0 0) (-3 3 0) (-1 3 0) (1 3 0) (3 3 0)
 (-3 0 0.2) (-1 0 0.2) (1 0 0.2) (3 0 0.2) (-3 3 0.2) (-1 3 0.2) (1 3 0.2) (3 3 0.2) );
blocks (
 hex (0 1 5 4 8 9 13 12) (3 6 1) simpleGrading (1 1 1)
 hex (1 2 6 5 9 10 14 13) (6 6 1) simpleGrading (1 1 1)
 hex (2 3 7 6 10 11 15 14) (3 6 1) simpleGrading (1 1 1) );
edges ( arc 1 2 (0 1 0) arc 9 10 (0 1 0.2) );
boundary (
 inlet { type patch; faces ((0 8 12 4)); }
 outlet { type patch; faces ((3 7 15 11)); }
 cylinder { type wall; faces ((1 2 10 9)); }
 top { type patch; faces ((4 12 13 5) (5 13 14 6) (6 14 15 7)); }
 bottom { type symmetryPlane; faces ((0 1 9 8) (2 3 11 10)); }
 sides { type empty; faces ((0 4 5 1) (1 5 6 2) (2 6 7 3)
  (8 9 13 12) (9 10 14 13) (10 11 15 14)); } );
X
} > system/blockMeshDict
{ head dictionary controlDict; echo 'application potentialFoam; startFrom startTime;
startTime 0; stopAt endTime; endTime 1; deltaT 1; writeControl timeStep; writeInterval 1;
writeFormat ascii;'; } > system/controlDict
{ head dictionary fvSchemes; echo 'ddtSchemes { default steadyState; }
gradSchemes { default Gauss linear; } divSchemes { default none; div(div(phi,U)) Gauss
linear; div(phi,U) Gauss linear; } laplacianSchemes { default Gauss linear corrected; }
interpolationSchemes { default linear; } snGradSchemes { default corrected; }'
} > system/fvSchemes
{ head dictionary fvSolution; echo 'solvers { "p|Phi" { solver PCG; preconditioner DIC;
tolerance 1e-8; relTol 0; } } potentialFlow { nNonOrthogonalCorrectors 5; }'
} > system/fvSolution
{ head volVectorField U; echo 'dimensions [0 1 -1 0 0 0 0]; internalField uniform (1 0 0);
boundaryField { inlet { type fixedValue; value uniform (1 0 0); }
outlet { type zeroGradient; } "cylinder|top" { type slip; }
bottom { type symmetryPlane; } sides { type empty; } }'; } > 0/U
{ head volScalarField p; echo 'dimensions [0 2 -2 0 0 0 0]; internalField uniform 0;
boundaryField { inlet { type zeroGradient; } outlet { type fixedValue; value uniform 0; }
"cylinder|top" { type zeroGradient; } bottom { type symmetryPlane; }
sides { type empty; } }'; } > 0/p
blockMesh > log
potentialFoam -writep >> log
foamToVTK -fields '(p U)' >> log
